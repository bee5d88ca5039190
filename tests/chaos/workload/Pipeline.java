import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A feeder or a pipeline on Kafka's own client, with the steps of pipelines.py: Pipeline ROLE SETTINGS. */
public final class Pipeline {
    private static final int BATCH = 20;
    private static final double ABORTED = 0.1;
    private static final int FEED = 6;
    private static final Duration CALL = Duration.ofSeconds(10);
    private static final long RETRY_LIMIT_NS = 60_000_000_000L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private static volatile boolean isStopping;

    private static final class Abortable extends Exception {
        Abortable(Throwable cause) {
            super(cause);
        }
    }

    private static final class Broken extends Exception {
        Broken(Throwable cause) {
            super(cause);
        }
    }

    private interface Call {
        void run() throws Exception;
    }

    private final JsonNode settings;
    private final FileOutputStream history;
    private String process;
    private Random random;
    private KafkaProducer<byte[], byte[]> producer;
    private KafkaConsumer<byte[], byte[]> consumer;
    private long sends;
    private long transactions;
    private long commits;

    private Pipeline(JsonNode settings) throws IOException {
        this.settings = settings;
        this.history = new FileOutputStream(settings.get("history").asText(), true);
    }

    private String text(String name) {
        return settings.get(name).asText();
    }

    // Events

    private synchronized void say(String event, Object... facts) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("t", System.nanoTime() / 1e9); // Linux: the monotonic clock of the other processes.
        row.put("process", process);
        row.put("event", event);
        for (int i = 0; i < facts.length; i += 2) {
            row.put((String) facts[i], facts[i + 1]);
        }
        try {
            history.write((JSON.writeValueAsString(row) + "\n").getBytes("UTF-8"));
        } catch (IOException failed) {
            throw new IllegalStateException(failed);
        }
    }

    private static void log(String what, Throwable why) {
        System.err.printf("%.3f %s: %s%n", System.nanoTime() / 1e9, what, why);
    }

    // Calls

    private void call(Call call) throws Abortable, Broken {
        long deadline = System.nanoTime() + RETRY_LIMIT_NS;
        while (true) {
            try {
                call.run();
                return;
            } catch (ProducerFencedException | InvalidProducerEpochException | AuthorizationException
                | OutOfOrderSequenceException | IllegalStateException fatal) {
                throw new Broken(fatal);
            } catch (TimeoutException unknown) {
                log("retriable", unknown);
                if (System.nanoTime() > deadline) {
                    throw new Broken(unknown);
                }
            } catch (KafkaException failed) {
                throw new Abortable(failed);
            } catch (Exception other) {
                throw new Broken(other);
            }
        }
    }

    private void open(boolean isPipeline) throws Abortable, Broken {
        ByteArraySerializer bytes = new ByteArraySerializer();
        Properties common = new Properties();
        common.put("bootstrap.servers", text("bootstrap"));
        common.put("client.id", process);
        common.put("reconnect.backoff.max.ms", "1000");
        Properties own = new Properties();
        own.putAll(common);
        own.put("transactional.id", text("transactional_id"));
        own.put("transaction.timeout.ms", text("transaction_timeout_ms"));
        own.put("request.timeout.ms", "5000");
        own.put("delivery.timeout.ms", "30000");
        own.put("max.block.ms", String.valueOf(CALL.toMillis()));
        own.put("linger.ms", "5");
        producer = new KafkaProducer<>(own, bytes, bytes);
        call(producer::initTransactions);
        if (isPipeline) {
            Properties reading = new Properties();
            reading.putAll(common);
            reading.put("group.id", text("group"));
            reading.put("enable.auto.commit", "false");
            reading.put("auto.offset.reset", "earliest");
            reading.put("isolation.level", "read_committed");
            reading.put("session.timeout.ms", text("session_ms"));
            reading.put("heartbeat.interval.ms", String.valueOf(settings.get("session_ms").asInt() / 6));
            ByteArrayDeserializer plain = new ByteArrayDeserializer();
            consumer = new KafkaConsumer<>(reading, plain, plain);
            consumer.subscribe(List.of(text("topic")));
        }
    }

    private void close() {
        if (consumer != null) {
            consumer.close(Duration.ofSeconds(5));
            consumer = null;
        }
        if (producer != null) {
            producer.close(Duration.ZERO);
            producer = null;
        }
    }

    // Roles

    private void feed() throws Exception {
        long due = System.nanoTime();
        while (!isStopping) {
            int count = 1 + random.nextInt(FEED);
            begin();
            end(() -> {
                for (int i = 0; i < count; i++) {
                    send(text("topic"), text("label"), null);
                }
            });
            due += (long) (count * 1e9 / settings.get("rate").asDouble());
            Thread.sleep(Math.max(0, (due - System.nanoTime()) / 1_000_000));
        }
    }

    private void process() throws Exception {
        while (!isStopping) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            try {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            } catch (KafkaException failed) {
                throw new Broken(failed);
            }
            for (int start = 0; start < records.size(); start += BATCH) {
                int stop = Math.min(start + BATCH, records.size());
                if (!process(records.subList(start, stop))) {
                    rewind(records.subList(start, records.size()));
                    break;
                }
            }
        }
    }

    private boolean process(List<ConsumerRecord<byte[], byte[]>> batch) throws Exception {
        Map<Integer, Long> positions = new TreeMap<>();
        batch.forEach(one -> positions.put(one.partition(), one.offset() + 1));
        begin();
        return end(() -> {
            for (ConsumerRecord<byte[], byte[]> one : batch) {
                String value = new String(one.value(), "UTF-8");
                send(text("output"), text("output"),
                    List.of(text("label"), one.partition(), one.offset(), value));
            }
            commits++;
            List<Object> rows = new ArrayList<>();
            Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
            positions.forEach((number, offset) -> {
                rows.add(List.of(text("label"), number, offset));
                offsets.put(new TopicPartition(text("topic"), number), new OffsetAndMetadata(offset));
            });
            say("commit", "n", commits, "txn", transactions, "group", text("group"),
                "generation", null, "offsets", rows);
            call(() -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()));
        });
    }

    private void rewind(List<ConsumerRecord<byte[], byte[]>> records) {
        Map<TopicPartition, Long> firsts = new LinkedHashMap<>();
        records.forEach(one ->
            firsts.putIfAbsent(new TopicPartition(one.topic(), one.partition()), one.offset()));
        firsts.forEach((partition, offset) -> {
            if (consumer.assignment().contains(partition)) {
                consumer.seek(partition, offset);
            }
        });
    }

    // Transactions

    private void begin() throws Abortable, Broken {
        transactions++;
        say("txn-begin", "n", transactions, "id", text("transactional_id"));
        call(producer::beginTransaction);
    }

    private void send(String topic, String label, List<Object> source) throws Abortable, Broken {
        long n = ++sends;
        String value = process + "/" + n;
        int partition = (int) (n % settings.get("partitions").asInt());
        List<Object> facts = new ArrayList<>(List.of("n", n, "topic", label, "partition", partition,
            "key", "", "value", value, "txn", transactions));
        if (source != null) {
            facts.addAll(List.of("source", source));
        }
        say("send", facts.toArray());
        call(() -> producer.send(
            new ProducerRecord<>(topic, partition, null, value.getBytes("UTF-8")), (place, error) -> {
                boolean isTold = error == null && place.hasOffset();
                say("sent", "n", n, "outcome", error == null ? "ok" : "unknown",
                    "offset", isTold ? place.offset() : null,
                    "error", error == null ? null : error.toString());
            }));
    }

    private boolean end(Call work) throws Exception {
        try {
            work.run();
            if (random.nextDouble() >= ABORTED) {
                say("txn-ending", "n", transactions, "wish", "commit");
                call(producer::commitTransaction);
                say("txn-ended", "n", transactions, "outcome", "committed", "error", null);
                return true;
            }
        } catch (Abortable failed) {
            log("abortable", failed);
        }
        say("txn-ending", "n", transactions, "wish", "abort");
        call(producer::abortTransaction);
        say("txn-ended", "n", transactions, "outcome", "aborted", "error", null);
        return false;
    }

    private void run(String role) throws InterruptedException {
        for (int life = 1; !isStopping; life++) {
            process = text("process") + (life > 1 ? "." + life : "");
            random = new Random((text("seed") + " " + process).hashCode());
            sends = transactions = commits = 0;
            try {
                open(role.equals("pipeline"));
                if (role.equals("feeder")) {
                    feed();
                } else {
                    process();
                }
            } catch (Exception broken) {
                log("broken", broken);
                Thread.sleep(200);
            } finally {
                say("ended");
                close();
            }
        }
    }

    private static void endWithTheCampaign() {
        try {
            System.in.read();
        } catch (IOException ended) {
            // As good as its end.
        }
        Runtime.getRuntime().halt(3);
    }

    public static void main(String[] arguments) throws Exception {
        Pipeline pipeline = new Pipeline(JSON.readTree(arguments[1]));
        Thread campaign = new Thread(Pipeline::endWithTheCampaign);
        campaign.setDaemon(true);
        campaign.start();
        Thread own = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isStopping = true;
            try {
                own.join(50_000);
            } catch (InterruptedException ended) {
                // It ends all the same.
            }
        }));
        pipeline.run(arguments[0]);
    }
}
