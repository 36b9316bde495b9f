// Proton C++ as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py. Its API has no
// receiver settle mode: first.
#include <proton/connection.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver_options.hpp>
#include <proton/sender.hpp>
#include <proton/tracker.hpp>
#include <proton/work_queue.hpp>

#include <chrono>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

static long long now() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void tell(const std::string& event, const std::string& more = "") {
    std::cout << "{\"event\": \"" << event << "\"" << more << "}" << std::endl;
}

template <class T> static std::string list(const std::vector<T>& values) {
    std::ostringstream out;
    for (size_t i = 0; i < values.size(); i++) out << (i ? "," : "[") << values[i];
    return values.empty() ? "[]" : out.str() + "]";
}

class Client : public proton::messaging_handler {
  public:
    std::string role, router, address;
    size_t total, bytes, sent = 0, refused = 0, damaged = 0;
    bool hold;
    std::vector<long long> numbers, times;
    std::vector<proton::delivery> held;
    proton::sender sender;
    proton::connection connection;

    void on_container_start(proton::container& container) override {
        connection = container.connect("amqp://" + router);
        if (role == "publish") sender = connection.open_sender(address);
        else connection.open_receiver(address, proton::receiver_options().auto_accept(false).credit_window(100));
    }
    void on_connection_open(proton::connection& c) override {
        std::thread([this, &queue = c.work_queue()] {
            for (std::string line; std::getline(std::cin, line);)
                queue.add([this] { for (auto& delivery : held) give(delivery); tell("complete"); });
            queue.add([this] { connection.close(); });
        }).detach();
    }
    void on_sender_open(proton::sender&) override { tell("attached"); }
    void on_receiver_open(proton::receiver&) override { tell("attached"); }
    void on_sendable(proton::sender&) override { pump(); }
    void pump() {
        while (sender.credit() && sent < total && sent - numbers.size() < 1000) {
            std::string body = std::to_string(sent) + " ";
            body.resize(bytes, '.');
            proton::message message{proton::binary(body)};
            message.inferred(true); // a data section
            sender.send(message, proton::binary(std::to_string(sent++)));
        }
    }
    void on_tracker_accept(proton::tracker& tracker) override {
        proton::binary tag = tracker.tag();
        numbers.push_back(std::stoll(std::string(tag.begin(), tag.end())));
        times.push_back(now());
        if (numbers.size() == total) tell("complete");
        pump();
    }
    void on_tracker_reject(proton::tracker&) override { refused++; }
    void on_tracker_release(proton::tracker&) override { refused++; }
    void on_message(proton::delivery& delivery, proton::message& message) override {
        proton::binary body = proton::get<proton::binary>(message.body());
        numbers.push_back(std::stoll(std::string(body.begin(), body.end())));
        damaged += body.size() != bytes;
        if (hold) held.push_back(delivery);
        else give(delivery);
        if (numbers.size() == total) {
            tell("received");
            if (!hold) tell("complete");
        }
    }
    void give(proton::delivery& delivery) {
        times.push_back(now());
        delivery.accept();
    }
    void on_connection_close(proton::connection&) override {
        std::ostringstream more;
        more << ", \"numbers\": " << list(numbers) << ", \"times\": " << list(times) << ", \"refused\": " << refused
             << ", \"damaged\": " << damaged << ", \"settled\": 0";
        tell("done", more.str());
    }
};

int main(int, char** arguments) {
    Client client;
    client.role = arguments[1];
    client.router = arguments[2];
    client.address = arguments[3];
    client.total = std::stoul(arguments[4]);
    client.bytes = std::stoul(arguments[5]);
    client.hold = std::string(arguments[7]) == "hold";
    proton::container(client).run();
    std::cout << std::flush;
    std::_Exit(0);
}
