// Apache Qpid protonj2 as its documentation teaches it: publisher or subscriber, see tests/interop/foreign.py. It finds
// another router by itself.
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;

import org.apache.qpid.protonj2.client.*;
import org.apache.qpid.protonj2.client.exceptions.ClientException;

public class ProtonJ2Client {
    static volatile boolean inputHasEnded;

    static void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        inputHasEnded = true;
    }

    static void tell(String event, String more) {
        System.out.println("{\"event\": \"" + event + "\"" + more + "}");
        System.out.flush();
    }

    static Connection connect(String name, String routers) throws ClientException {
        ConnectionOptions options = new ConnectionOptions();
        options.reconnectEnabled(true);
        options.reconnectOptions().maxReconnectDelay(500);
        String[] all = routers.split(",");
        for (String router : all) {
            options.reconnectOptions().addReconnectLocation(router.split(":")[0], Integer.parseInt(router.split(":")[1]));
        }
        ClientOptions named = new ClientOptions().id(name);
        return Client.create(named).connect(all[0].split(":")[0], Integer.parseInt(all[0].split(":")[1]), options);
    }

    public static void main(String[] a) throws Exception {
        if (a[0].equals("publish")) publish(a[1], a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]));
        else subscribe(a[1], a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]));
        System.exit(0);
    }

    // At most 100 messages are under way. After a loss the library does not know their outcomes. They are sent again.
    static void publish(String routers, String address, int total, int size) throws Exception {
        Connection connection = connect("protonj2-publish", routers);
        Sender sender = connection.openSender(address);
        sender.openFuture().get();
        tell("attached", "");
        Deque<Integer> todo = new ArrayDeque<>();
        for (int number = 0; number < total; number++) todo.add(number);
        Deque<Integer> doubtful = new ArrayDeque<>();
        Deque<Tracker> trackers = new ArrayDeque<>();
        List<Integer> numbers = new ArrayList<>();
        int refused = 0;
        while (!todo.isEmpty() || !doubtful.isEmpty()) {
            try {
                if (!todo.isEmpty() && doubtful.size() < 100) {
                    byte[] body = Arrays.copyOf((todo.peek() + " ").getBytes(StandardCharsets.US_ASCII), size);
                    trackers.add(sender.send(Message.create(body)));
                    doubtful.add(todo.remove());
                } else {
                    trackers.peek().awaitSettlement();
                    if (trackers.remove().remoteState().isAccepted()) numbers.add(doubtful.remove());
                    else {
                        doubtful.remove();
                        refused++;
                    }
                }
            } catch (ClientException error) {
                while (!doubtful.isEmpty()) todo.addFirst(doubtful.removeLast());
                trackers.clear();
            }
        }
        tell("complete", "");
        awaitEndOfInput();
        connection.close();
        tell("done", ", \"numbers\": " + numbers + ", \"refused\": " + refused);
    }

    // At a topic the subscriber is durable: it misses nothing while it looks for another router. It consumes until its input
    // ends, because a message without an outcome comes again.
    static void subscribe(String routers, String address, int total, int size) throws Exception {
        Connection connection = connect("protonj2-subscribe", routers);
        ReceiverOptions options = new ReceiverOptions().autoAccept(false).creditWindow(100);
        Receiver receiver = address.startsWith("topic/")
            ? connection.openDurableReceiver(address, "durable", options) : connection.openReceiver(address, options);
        receiver.openFuture().get();
        new Thread(ProtonJ2Client::awaitEndOfInput).start();
        tell("attached", "");
        List<Integer> numbers = new ArrayList<>();
        Set<Integer> seen = new HashSet<>();
        int damaged = 0;
        while (!inputHasEnded) {
            try {
                Delivery delivery = receiver.receive(100, TimeUnit.MILLISECONDS);
                if (delivery == null) continue;
                byte[] body = delivery.<byte[]>message().body();
                int number = Integer.parseInt(new String(body, StandardCharsets.US_ASCII).split(" ")[0]);
                numbers.add(number);
                if (body.length != size) damaged++;
                boolean isNew = seen.add(number);
                delivery.accept();
                if (!isNew) continue;
                if (seen.size() == total / 3 || seen.size() == total * 2 / 3) tell("part", "");
                if (seen.size() == total) {
                    tell("received", "");
                    tell("complete", "");
                }
            } catch (ClientException error) {
                continue; // the message comes again
            }
        }
        receiver.close();
        connection.close();
        tell("done", ", \"numbers\": " + numbers + ", \"damaged\": " + damaged);
    }
}
