// One Java process for all tests of a module: it runs Kafka's clients and tools, a command per line.
//
// A command is words separated by tabs. What it prints comes back, then a line with a NUL and the
// exit code. `tests/support/java_judge.py` is the other end.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

public final class JavaJudge {
    private static final Duration WAIT = Duration.ofSeconds(180);

    private static final class ExitError extends Error {
        final int code;

        ExitError(int code) {
            super("exit code " + code);
            this.code = code;
        }
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new ExitError(code); });
        Exit.setHaltProcedure((code, message) -> { throw new ExitError(code); });
        // The hooks of tools would wait for what they have closed already.
        Exit.setShutdownHookAdder((name, runnable) -> { });
        PrintStream answers = System.out;
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            int code = 0;
            try {
                run(words[0], Arrays.copyOfRange(words, 1, words.length));
            } catch (Throwable failure) {
                Throwable cause = failure;
                while (cause instanceof InvocationTargetException) {
                    cause = cause.getCause();
                }
                if (cause instanceof ExitError) {
                    code = ((ExitError) cause).code;
                } else {
                    cause.printStackTrace(System.out);
                    code = 99;
                }
            }
            System.out.flush();
            answers.write(printed.toByteArray());
            answers.println("\n\0" + code);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void run(String command, String[] words) throws Exception {
        switch (command) {
            case "tool":
                String[] rest = Arrays.copyOfRange(words, 1, words.length);
                Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
                break;
            case "produce":
                produce(words[0], words[1], Integer.parseInt(words[2]));
                break;
            case "fence":
                fence(words[0], words[1]);
                break;
            case "copy":
                copy(words[0], words[1], words[2]);
                break;
            case "read":
                read(words[0], words[1]);
                break;
            case "streams":
                streams(words[0], words[1], words[2], words[3], Integer.parseInt(words[4]));
                break;
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        KafkaProducer<String, String> made =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** Commits and aborts transactions of ten records in turn, over partitions 0 and 1. */
    private static void produce(String bootstrap, String topic, int count) {
        try (KafkaProducer<String, String> producer = producer(bootstrap, "java-" + topic)) {
            for (int number = 0; number < count; number++) {
                boolean isCommit = number % 2 == 0;
                producer.beginTransaction();
                for (int index = 0; index < 10; index++) {
                    String value = (isCommit ? "kept-" : "lost-") + number + "-" + index;
                    producer.send(new ProducerRecord<>(topic, index % 2, null, value));
                }
                if (isCommit) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
    }

    /** A second producer of the id fences the first one in its transaction. */
    private static void fence(String bootstrap, String topic) throws Exception {
        KafkaProducer<String, String> first = producer(bootstrap, "fenced-" + topic);
        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, 0, null, "zombie")).get(WAIT.toSeconds(), TimeUnit.SECONDS);
        try (KafkaProducer<String, String> second = producer(bootstrap, "fenced-" + topic)) {
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, 0, null, "successor"));
            second.commitTransaction();
        }
        try {
            first.commitTransaction();
            System.out.println("committed");
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            System.out.println("fenced");
        }
        first.close(Duration.ZERO);
    }

    /** Consume, transform, produce, until partition 0 of the source is copied. */
    private static void copy(String bootstrap, String source, String target) {
        TopicPartition input = new TopicPartition(source, 0);
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, "copy-" + source);
            KafkaProducer<String, String> producer = producer(bootstrap, "copy-" + source)) {
            consumer.subscribe(List.of(source));
            long end = consumer.endOffsets(List.of(input)).get(input);
            long done = 0;
            for (int turn = 0; done < end; turn++) {
                ConsumerRecords<String, String> records = consumer.poll(WAIT);
                if (records.isEmpty() && consumer.position(input) == done) {
                    throw new IllegalStateException("nothing to read at " + done);
                }
                // Without records where only markers were left.
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, 0, null, "copy of " + record.value()));
                }
                long next = consumer.position(input);
                producer.sendOffsetsToTransaction(
                    Map.of(input, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (turn == 0) {
                    // Read again from where the group is.
                    producer.flush();
                    producer.abortTransaction();
                    OffsetAndMetadata found = consumer.committed(Collections.singleton(input)).get(input);
                    consumer.seek(input, found == null ? 0 : found.offset());
                } else {
                    producer.commitTransaction();
                    done = next;
                }
            }
            System.out.println(consumer.committed(Collections.singleton(input)).get(input).offset());
        }
    }

    /** The values of all partitions, as a reader of committed records finds them. */
    private static void read(String bootstrap, String topic) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, "read-" + topic)) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                .map(one -> new TopicPartition(topic, one.partition())).toList();
            consumer.assign(all);
            Map<TopicPartition, Long> ends = new HashMap<>(consumer.endOffsets(all));
            long deadline = System.nanoTime() + WAIT.toNanos();
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not at the end: " + ends);
                }
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    System.out.println(record.value());
                }
            }
        }
    }

    /** Counts the values of a topic by Kafka Streams, with a store, until the counts reach a sum. */
    private static void streams(
        String bootstrap, String source, String target, String directory, int wanted)
        throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(source, Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()).withCachingDisabled())
            .toStream()
            .map((key, count) -> org.apache.kafka.streams.KeyValue.pair(key, key + "=" + count))
            .to(target, Produced.with(Serdes.String(), Serdes.String()));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("application.id", "streams-" + target);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "50");
        settings.put("state.dir", directory);
        settings.put("replication.factor", "1");
        settings.put("consumer.auto.offset.reset", "earliest");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings);
            KafkaConsumer<String, String> reader = consumer(bootstrap, "judge-" + target)) {
            Throwable[] failed = new Throwable[1];
            streams.setUncaughtExceptionHandler(failure -> {
                failed[0] = failure;
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler
                    .StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            reader.assign(List.of(new TopicPartition(target, 0)));
            reader.seekToBeginning(reader.assignment());
            long deadline = System.nanoTime() + WAIT.toNanos();
            for (int count = 0; count < wanted;) {
                if (failed[0] != null || System.nanoTime() > deadline) {
                    throw new KafkaException("found " + count + " of " + wanted, failed[0]);
                }
                for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(50))) {
                    System.out.println(record.value());
                    count++;
                }
            }
        }
    }
}
