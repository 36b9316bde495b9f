// Apache Qpid JMS as its documentation teaches it. `publish` and `subscribe` are those of tests/interop/foreign.py, with
// several routers, for failover. `check NAME ROUTERS` tries what JMS promises, and prints what it saw: test_jms.py judges.
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.List;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

import javax.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

public class JmsClient {
    static final long PATIENCE_MS = 20_000;
    // A topic accepts a message when its subscribers have processed it. So a thread that publishes and then receives must not
    // wait for the outcome of what it has sent.
    static final String ASYNC = "&jms.forceAsyncSend=true";

    static volatile boolean inputHasEnded;

    static void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        inputHasEnded = true;
    }

    static synchronized void tell(String event, String more) {
        System.out.println("{\"event\": \"" + event + "\"" + more + "}");
        System.out.flush();
    }

    static Connection connect(String routers, String more) throws JMSException {
        String list = Arrays.stream(routers.split(",")).map(router -> "amqp://" + router).collect(Collectors.joining(","));
        String options = "?failover.maxReconnectDelay=500" + more;
        Connection connection = new JmsConnectionFactory("failover:(" + list + ")" + options).createConnection();
        connection.start();
        return connection;
    }

    static Destination destination(Session session, String address) throws JMSException {
        return address.startsWith("topic/") ? session.createTopic(address) : session.createQueue(address);
    }

    public static void main(String[] a) throws Exception {
        if (a[0].equals("check")) System.out.println(check(a[1], a[2]));
        else if (a[0].equals("publish")) publish(a[1], a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]));
        else subscribe(a[1], a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]));
        System.exit(0);
    }

    // At most 100 messages are under way. If the connection is lost, JMS says so of each of them. They are sent again.
    static void publish(String routers, String address, int total, int size) throws Exception {
        Connection connection = connect(routers, "");
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(destination(session, address));
        List<Integer> numbers = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger refused = new AtomicInteger();
        BlockingQueue<Integer> todo = new LinkedBlockingQueue<>();
        for (int number = 0; number < total; number++) todo.add(number);
        Semaphore room = new Semaphore(100);
        tell("attached", "");
        while (numbers.size() < total) {
            Integer number = todo.poll(100, TimeUnit.MILLISECONDS);
            if (number == null) continue;
            room.acquire();
            BytesMessage message = session.createBytesMessage();
            message.writeBytes(Arrays.copyOf((number + " ").getBytes(StandardCharsets.US_ASCII), size));
            producer.send(message, new CompletionListener() {
                public void onCompletion(Message message) {
                    numbers.add(number);
                    room.release();
                }

                public void onException(Message message, Exception error) {
                    if (error.getMessage().contains("condition =")) refused.incrementAndGet();
                    todo.add(number);
                    room.release();
                }
            });
        }
        tell("complete", "");
        awaitEndOfInput();
        connection.close();
        tell("done", ", \"numbers\": " + numbers + ", \"refused\": " + refused);
    }

    // At a topic the subscriber is durable: it misses nothing while it looks for another router. `received` comes when it
    // has seen each number. It consumes until its input ends, because a message without an outcome comes again.
    static void subscribe(String routers, String address, int total, int size) throws Exception {
        Connection connection = connect(routers, "&jms.clientID=durable");
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Destination from = destination(session, address);
        MessageConsumer consumer =
            from instanceof Topic ? session.createDurableSubscriber((Topic) from, "durable") : session.createConsumer(from);
        List<Integer> numbers = new ArrayList<>();
        Set<Integer> seen = new HashSet<>();
        int damaged = 0;
        new Thread(JmsClient::awaitEndOfInput).start();
        tell("attached", "");
        while (!inputHasEnded) {
            BytesMessage message = (BytesMessage) consumer.receive(100);
            if (message == null) continue;
            byte[] body = new byte[(int) message.getBodyLength()];
            message.readBytes(body);
            int number = new Scanner(new String(body, StandardCharsets.US_ASCII)).nextInt();
            numbers.add(number);
            if (body.length != size) damaged++;
            message.acknowledge();
            if (!seen.add(number)) continue;
            if (seen.size() == total / 3 || seen.size() == total * 2 / 3) tell("part", "");
            if (seen.size() == total) {
                tell("received", "");
                tell("complete", "");
            }
        }
        consumer.close();
        if (from instanceof Topic) session.unsubscribe("durable");
        connection.close();
        tell("done", ", \"numbers\": " + numbers + ", \"damaged\": " + damaged);
    }

    static String check(String name, String routers) throws Exception {
        boolean isForTopic = name.equals("durable") || name.equals("selector");
        Connection connection = connect(routers, "&jms.clientID=" + name + (isForTopic ? ASYNC : ""));
        try {
            switch (name) {
                case "client-acknowledge": return clientAcknowledge(connection);
                case "browser": return browser(connection);
                case "no-wait": return noWait(connection);
                case "durable": return durable(connection);
                case "one-tag": return oneTag(connection, routers);
                case "unsubscribe": return unsubscribe(connection);
                case "selector": return selector(connection);
                case "queue-selector": return queueSelector(connection);
                case "kinds": return kinds(connection);
                case "delay": return delay(connection);
                case "shared": return shared(connection);
                case "temporary-queue": return temporaryQueue(connection);
                case "temporary-topic": return temporaryTopic(connection);
                case "transacted": return transacted(connection);
                default: throw new IllegalArgumentException(name);
            }
        } catch (JMSException error) {
            return "refused: " + error.getMessage();
        } finally {
            connection.close();
        }
    }

    static void send(Session session, Destination to, String... texts) throws JMSException {
        MessageProducer producer = session.createProducer(to);
        for (String text : texts) producer.send(session.createTextMessage(text));
    }

    static String text(Message message) throws JMSException {
        return message == null ? "none" : ((TextMessage) message).getText();
    }

    // The texts of the next messages.
    static List<String> take(MessageConsumer consumer, int count) throws JMSException {
        List<String> taken = new ArrayList<>();
        while (taken.size() < count) taken.add(text(consumer.receive(PATIENCE_MS)));
        return taken;
    }

    static Session session(Connection connection) throws JMSException {
        return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
    }

    // What a session has not acknowledged comes again after recover(), and says so.
    static String clientAcknowledge(Connection connection) throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue("queue/client-acknowledge");
        send(session, queue, "1", "2", "3", "4");
        MessageConsumer consumer = session.createConsumer(queue);
        consumer.receive(PATIENCE_MS);
        consumer.receive(PATIENCE_MS).acknowledge();
        List<String> before = take(consumer, 2);
        session.recover();
        Message again = consumer.receive(PATIENCE_MS);
        String told = text(again) + " " + again.getJMSRedelivered() + " " + again.getIntProperty("JMSXDeliveryCount");
        Message last = consumer.receive(PATIENCE_MS);
        last.acknowledge();
        return before + " " + told + " " + text(last) + " " + text(consumer.receiveNoWait());
    }

    static String browser(Connection connection) throws JMSException {
        Session session = session(connection);
        Queue queue = session.createQueue("queue/browser");
        send(session, queue, "1", "2", "3");
        List<String> seen = new ArrayList<>();
        for (Enumeration<?> all = session.createBrowser(queue).getEnumeration(); all.hasMoreElements();) {
            seen.add(text((Message) all.nextElement()));
        }
        return seen + " " + take(session.createConsumer(queue), 3);
    }

    // Nothing there is answered soon, what is there at once.
    static String noWait(Connection connection) throws JMSException {
        Session session = session(connection);
        Queue queue = session.createQueue("queue/no-wait");
        MessageConsumer consumer = session.createConsumer(queue);
        String nothing = text(consumer.receiveNoWait());
        send(session, queue, "1", "2");
        return nothing + " " + text(consumer.receiveNoWait()) + " " + text(consumer.receiveNoWait()) + " "
            + text(consumer.receiveNoWait());
    }

    // What is published while a durable subscriber is away comes when it is back.
    static String durable(Connection connection) throws JMSException {
        Session session = session(connection);
        Topic topic = session.createTopic("topic/durable");
        session.createDurableSubscriber(topic, "reader").close();
        send(session, topic, "1", "2");
        MessageConsumer back = session.createDurableSubscriber(topic, "reader");
        String taken = take(back, 2).toString();
        back.close();
        session.unsubscribe("reader");
        return taken;
    }

    // With synchronous sends, all messages of a producer have the same delivery-tag.
    static String oneTag(Connection connection, String routers) throws JMSException {
        Session session = session(connection);
        Topic topic = session.createTopic("topic/one-tag");
        MessageConsumer reader = session.createDurableSubscriber(topic, "one-tag");
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        reader.setMessageListener(message -> {
            try {
                seen.add(text(message));
            } catch (JMSException error) {
                throw new RuntimeException(error);
            }
        });
        String[] first = routers.split(",", 2);
        Connection other = connect(first[1] + "," + first[0], "&jms.clientID=one-tag-publisher");
        List<String> sent = new ArrayList<>();
        for (int number = 0; number < 1000; number++) sent.add("" + number);
        send(session(other), topic, sent.toArray(new String[0]));
        other.close();
        reader.close();
        session.unsubscribe("one-tag");
        return seen.size() + " in order: " + seen.equals(sent);
    }

    static String unsubscribe(Connection connection) throws JMSException {
        Session session = session(connection);
        session.createDurableSubscriber(session.createTopic("topic/unsubscribe"), "reader").close();
        session.unsubscribe("reader");
        try {
            session.unsubscribe("reader");
        } catch (InvalidDestinationException error) {
            return "gone";
        }
        return "still there";
    }

    static String selector(Connection connection) throws JMSException {
        Session session = session(connection);
        Topic topic = session.createTopic("topic/selector");
        MessageConsumer consumer = session.createConsumer(topic, "colour = 'green' AND JMSPriority = 7 AND size BETWEEN 2 AND 4");
        MessageProducer producer = session.createProducer(topic);
        producer.setPriority(7);
        for (int size = 0; size < 8; size++) {
            Message message = session.createTextMessage("" + size);
            message.setStringProperty("colour", size % 2 == 0 ? "green" : "red");
            message.setIntProperty("size", size);
            producer.send(message);
        }
        return take(consumer, 2) + " " + text(consumer.receiveNoWait());
    }

    static String queueSelector(Connection connection) throws JMSException {
        Session session = session(connection);
        Queue queue = session.createQueue("queue/selector");
        session.createConsumer(queue, "colour = 'green'");
        return "taken";
    }

    // Each kind of message arrives as it was sent, with its properties.
    static String kinds(Connection connection) throws JMSException {
        Session session = session(connection);
        Queue queue = session.createQueue("queue/kinds");
        MessageProducer producer = session.createProducer(queue);
        MapMessage map = session.createMapMessage();
        map.setInt("int", 7);
        map.setString("text", "grüße");
        StreamMessage stream = session.createStreamMessage();
        stream.writeLong(1L << 40);
        stream.writeBoolean(true);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {1, 2, 3});
        Message[] sent = {map, stream, bytes, session.createObjectMessage("an object"), session.createMessage()};
        for (Message message : sent) {
            message.setStringProperty("colour", "green");
            message.setJMSCorrelationID("id");
            message.setJMSType("type");
            producer.send(message);
        }
        MessageConsumer consumer = session.createConsumer(queue);
        map = (MapMessage) consumer.receive(PATIENCE_MS);
        stream = (StreamMessage) consumer.receive(PATIENCE_MS);
        bytes = (BytesMessage) consumer.receive(PATIENCE_MS);
        ObjectMessage object = (ObjectMessage) consumer.receive(PATIENCE_MS);
        Message none = consumer.receive(PATIENCE_MS);
        return map.getInt("int") + map.getString("text") + " " + (stream.readLong() >> 40) + stream.readBoolean() + " "
            + bytes.getBodyLength() + " " + object.getObject() + " " + none.getStringProperty("colour")
            + none.getJMSCorrelationID() + none.getJMSType() + none.getJMSDeliveryMode() + none.getJMSPriority();
    }

    // A delayed message comes after one that is sent later.
    static String delay(Connection connection) throws JMSException {
        Session session = session(connection);
        Queue queue = session.createQueue("queue/delay");
        MessageProducer producer = session.createProducer(queue);
        producer.setDeliveryDelay(1000);
        producer.send(session.createTextMessage("late"));
        producer.setDeliveryDelay(0);
        producer.send(session.createTextMessage("soon"));
        return take(session.createConsumer(queue), 2).toString();
    }

    static String shared(Connection connection) throws JMSException {
        Session session = session(connection);
        session.createSharedConsumer(session.createTopic("topic/shared"), "group");
        return "taken";
    }

    // A request names a temporary destination for its answer, in a connection of its own.
    static String temporary(Connection connection, Destination to) throws JMSException {
        Session session = session(connection);
        MessageConsumer answers = session.createConsumer(to);
        Queue queue = session.createQueue("queue/requests");
        Message request = session.createTextMessage("request");
        request.setJMSReplyTo(to);
        session.createProducer(queue).send(request);
        Session server = session(connection);
        Message asked = server.createConsumer(queue).receive(PATIENCE_MS);
        send(server, asked.getJMSReplyTo(), "answer to " + text(asked));
        return text(answers.receive(PATIENCE_MS));
    }

    static String temporaryQueue(Connection connection) throws JMSException {
        return temporary(connection, session(connection).createTemporaryQueue());
    }

    static String temporaryTopic(Connection connection) throws JMSException {
        return temporary(connection, session(connection).createTemporaryTopic());
    }

    // What is rolled back was never sent, and comes again; what is committed stays.
    static String transacted(Connection connection) throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue("queue/transacted");
        send(session, queue, "rolled back");
        session.rollback();
        send(session, queue, "committed");
        session.commit();
        MessageConsumer consumer = session.createConsumer(queue);
        String first = text(consumer.receive(PATIENCE_MS));
        session.rollback();
        String again = text(consumer.receive(PATIENCE_MS));
        session.commit();
        return first + " " + again + " " + text(consumer.receiveNoWait());
    }
}
