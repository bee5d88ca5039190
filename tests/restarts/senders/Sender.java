import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The sender on Kafka's own client: Sender BOOTSTRAP TOPIC PARTITIONS TRANSACTIONAL_ID. */
public final class Sender {
    private static final int DELIVERY_MS = 600_000;
    private static final int AHEAD = 200;
    private static volatile boolean isOver;

    private static synchronized void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (java.io.IOException ended) {
            // As good as its end.
        }
        isOver = true;
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        String transactionalId = arguments[3];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("enable.idempotence", "true");
        settings.put("acks", "all");
        settings.put("max.in.flight.requests.per.connection", "5");
        settings.put("batch.size", "100");
        settings.put("linger.ms", "0");
        settings.put("delivery.timeout.ms", String.valueOf(DELIVERY_MS));
        settings.put("reconnect.backoff.max.ms", "500");
        if (!transactionalId.isEmpty()) {
            settings.put("transactional.id", transactionalId);
            settings.put("transaction.timeout.ms", String.valueOf(DELIVERY_MS));
        }
        Thread input = new Thread(Sender::awaitEndOfInput);
        input.setDaemon(true);
        input.start();
        long count = 0;
        AtomicLong answered = new AtomicLong();
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            if (!transactionalId.isEmpty()) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            while (!isOver) {
                if (count - answered.get() < AHEAD) {
                    long number = count++;
                    byte[] value = Long.toString(number).getBytes("US-ASCII");
                    int partition = (int) (number % partitions);
                    producer.send(new ProducerRecord<>(topic, partition, null, value), (place, error) -> {
                        answered.incrementAndGet();
                        tell(error == null
                            ? "acked " + number + " " + (place.hasOffset() ? place.offset() : -1)
                            : "failed " + number + " " + error);
                    });
                }
                Thread.sleep(1);
            }
            producer.flush();
            if (!transactionalId.isEmpty()) {
                producer.commitTransaction();
            }
        }
        tell("sent " + count);
    }
}
