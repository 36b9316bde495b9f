// Proton C++ as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py. Its API has no
// receiver settle mode: first.
#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver_options.hpp>
#include <proton/reconnect_options.hpp>
#include <proton/sender.hpp>
#include <proton/source_options.hpp>
#include <proton/tracker.hpp>
#include <proton/work_queue.hpp>

#include <chrono>
#include <deque>
#include <iostream>
#include <set>
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
    std::string role, address;
    std::vector<std::string> urls;
    size_t total, bytes, refused = 0, damaged = 0;
    bool hold, attached = false;
    std::deque<size_t> todo;
    std::set<size_t> doubtful, seen;
    std::vector<long long> numbers, times;
    std::vector<proton::delivery> held;
    proton::sender sender;
    proton::receiver receiver;
    proton::connection connection;

    bool roams() { return urls.size() > 1; }
    void on_container_start(proton::container& container) override {
        proton::connection_options options;
        if (roams()) {
            options.failover_urls({urls.begin() + 1, urls.end()});
            options.reconnect(proton::reconnect_options().delay(proton::duration(50)).max_delay(proton::duration(500)));
        }
        connection = container.connect(urls[0], options);
        if (role == "publish") {
            for (size_t number = 0; number < total; number++) todo.push_back(number);
            sender = connection.open_sender(address);
        } else {
            proton::receiver_options options;
            options.auto_accept(false).credit_window(100);
            if (roams() && address.rfind("topic/", 0) == 0)
                options.name("durable").source(proton::source_options()
                    .durability_mode(proton::source::UNSETTLED_STATE).expiry_policy(proton::source::NEVER));
            receiver = connection.open_receiver(address, options);
        }
    }
    void on_connection_open(proton::connection& c) override {
        if (c.reconnected()) {
            todo.insert(todo.begin(), doubtful.begin(), doubtful.end());
            doubtful.clear();
            return;
        }
        std::thread([this, &queue = c.work_queue()] {
            for (std::string line; std::getline(std::cin, line);)
                queue.add([this] { for (auto& delivery : held) give(delivery); tell("complete"); });
            queue.add([this] {
                if (receiver) receiver.close(); // a durable subscriber ends with this
                connection.close();
            });
        }).detach();
    }
    void on_sender_open(proton::sender&) override { tell_attached(); }
    void on_receiver_open(proton::receiver&) override { tell_attached(); }
    void tell_attached() {
        if (!attached) tell("attached");
        attached = true;
    }
    void on_sendable(proton::sender&) override { pump(); }
    void pump() {
        while (sender.credit() && !todo.empty() && doubtful.size() < (roams() ? 100 : 1000)) {
            size_t number = todo.front();
            todo.pop_front();
            doubtful.insert(number);
            std::string body = std::to_string(number) + " ";
            body.resize(bytes, '.');
            proton::message message{proton::binary(body)};
            message.inferred(true); // a data section
            sender.send(message, proton::binary(std::to_string(number)));
        }
    }
    void on_tracker_accept(proton::tracker& tracker) override {
        proton::binary tag = tracker.tag();
        size_t number = std::stoul(std::string(tag.begin(), tag.end()));
        if (!doubtful.erase(number)) return;
        numbers.push_back(number);
        times.push_back(now());
        if (numbers.size() == total) tell("complete");
        pump();
    }
    void on_tracker_reject(proton::tracker&) override { refused++; }
    void on_tracker_release(proton::tracker&) override { refused++; }
    void on_message(proton::delivery& delivery, proton::message& message) override {
        proton::binary body = proton::get<proton::binary>(message.body());
        size_t number = std::stoul(std::string(body.begin(), body.end()));
        numbers.push_back(number);
        damaged += body.size() != bytes;
        if (hold) held.push_back(delivery);
        else give(delivery);
        if (!seen.insert(number).second) return;
        if (roams() && (seen.size() == total / 3 || seen.size() == total * 2 / 3)) tell("part");
        if (seen.size() == total) {
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
    std::istringstream routers(arguments[2]);
    for (std::string router; std::getline(routers, router, ',');) client.urls.push_back("amqp://" + router);
    client.address = arguments[3];
    client.total = std::stoul(arguments[4]);
    client.bytes = std::stoul(arguments[5]);
    client.hold = std::string(arguments[7]) == "hold";
    if (client.roams()) proton::container(client, "proton-c++-" + client.role).run();
    else proton::container(client).run();
    std::cout << std::flush;
    std::_Exit(0);
}
