import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Java kafka-clients behind the common commands. Compiles against 2.4.1, 4.3.1 and 4.4.0; newer calls go by reflection. */
public class InteropClient {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int WAIT_S = 40;

    final String bootstrap;
    final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    final Map<String, KafkaProducer<byte[], byte[]>> transactional = new HashMap<>();
    final Map<String, Pump> pumps = new HashMap<>();
    AdminClient admin;

    InteropClient(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        InteropClient client = new InteropClient(JSON.readTree(arguments[0]).get("bootstrap").asText());
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println(ok(JSON.createObjectNode().put("version", "kafka-clients " + version())));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(ok(client.run(JSON.readTree(line))));
            } catch (Throwable error) {
                out.println(failure(error));
            }
        }
        System.exit(0);
    }

    /** Where every release has it; the class that reads it moved in 4.4. */
    static String version() throws Exception {
        Properties told = new Properties();
        try (InputStream file = KafkaProducer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            told.load(file);
        }
        return told.getProperty("version");
    }

    static String ok(JsonNode result) {
        return JSON.createObjectNode().set("ok", result).toString();
    }

    static String failure(Throwable error) {
        while ((error instanceof ExecutionException || error instanceof InvocationTargetException)
            && error.getCause() != null) error = error.getCause();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("error", error.getClass().getSimpleName());
        answer.put("message", String.valueOf(error.getMessage()));
        answer.put("code", Errors.forException(error).code());
        return answer.toString();
    }

    JsonNode run(JsonNode command) throws Exception {
        switch (command.get("op").asText()) {
            case "produce": return produce(command);
            case "producer": return openProducer(command);
            case "begin": transactional(command).beginTransaction(); return JSON.createObjectNode();
            case "send": return send(transactional(command), command);
            case "end": return end(transactional(command), command);
            case "process": return process(command);
            case "close_producer":
                transactional.remove(command.get("id").asText()).close(Duration.ofSeconds(WAIT_S));
                return JSON.createObjectNode();
            case "open": return open(command);
            case "take": return take(command);
            case "assignment": return assignment(command);
            case "pause": return pause(command, true);
            case "resume": return pause(command, false);
            case "commit": return commit(command);
            case "close": pumps.remove(command.get("id").asText()).close(); return JSON.createObjectNode();
            case "metadata": return metadata();
            case "offsets": return offsets(command);
            case "committed": return committed(command);
            case "create_topic": return createTopic(command);
            case "delete_topic": return done(admin().deleteTopics(Collections.singletonList(topic(command))).all());
            case "create_partitions":
                return done(admin().createPartitions(Collections.singletonMap(
                    topic(command), NewPartitions.increaseTo(command.get("count").asInt()))).all());
            case "delete_records": return deleteRecords(command);
            case "describe_config": return describeConfig(command);
            case "alter_config": return alterConfig(command);
            case "groups": return groups();
            case "describe_group": return describeGroup(command);
            case "delete_group":
                return done(admin().deleteConsumerGroups(Collections.singletonList(command.get("group").asText())).all());
            case "delete_offsets":
                return done(admin().deleteConsumerGroupOffsets(
                    command.get("group").asText(), new HashSet<>(partitions(command))).all());
            case "alter_offsets": return alterOffsets(command);
            default: throw new IllegalArgumentException("unknown op " + command.get("op"));
        }
    }

    // Producing

    JsonNode produce(JsonNode command) throws Exception {
        return send(producer(command), command);
    }

    static JsonNode send(KafkaProducer<byte[], byte[]> producer, JsonNode command) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            ProducerRecord<byte[], byte[]> made = new ProducerRecord<>(
                topic(command),
                record.has("p") ? record.get("p").asInt() : null,
                record.has("t") ? record.get("t").asLong() : null,
                bytes(record.get("k")),
                bytes(record.get("v")));
            if (record.has("h"))
                for (JsonNode header : record.get("h")) made.headers().add(header.get(0).asText(), bytes(header.get(1)));
            sent.add(producer.send(made));
        }
        producer.flush();
        ArrayNode offsets = JSON.createArrayNode();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata placed = each.get(WAIT_S, TimeUnit.SECONDS);
            offsets.add(JSON.createArrayNode().add(placed.partition()).add(placed.hasOffset() ? placed.offset() : -1));
        }
        return JSON.createObjectNode().set("offsets", offsets);
    }

    KafkaProducer<byte[], byte[]> producer(JsonNode command) {
        Map<String, Object> settings = base();
        settings.put("linger.ms", 5);
        settings.put("compression.type", command.path("compression").asText("none"));
        settings.put("acks", command.path("acks").asText("all"));
        settings.put("enable.idempotence", command.path("idempotent").asBoolean(false));
        settings.put("max.request.size", command.path("max_request_bytes").asInt(1048576));
        settings.put("delivery.timeout.ms", WAIT_S * 1000);
        settings.put("request.timeout.ms", WAIT_S * 500);
        return producers.computeIfAbsent(settings.toString(), name -> producer(settings));
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    Map<String, Object> base() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.max.ms", 500);
        return settings;
    }

    // Transactions

    JsonNode openProducer(JsonNode command) {
        Map<String, Object> settings = base();
        settings.put("transactional.id", command.get("transactional_id").asText());
        settings.put("transaction.timeout.ms", command.path("timeout_ms").asInt(60000));
        settings.put("max.block.ms", WAIT_S * 1000);
        KafkaProducer<byte[], byte[]> producer = producer(settings);
        producer.initTransactions();
        transactional.put(command.get("id").asText(), producer);
        return JSON.createObjectNode();
    }

    KafkaProducer<byte[], byte[]> transactional(JsonNode command) {
        return transactional.get(command.get("id").asText());
    }

    static JsonNode end(KafkaProducer<byte[], byte[]> producer, JsonNode command) {
        if (command.get("commit").asBoolean()) producer.commitTransaction();
        else producer.abortTransaction();
        return JSON.createObjectNode();
    }

    JsonNode process(JsonNode command) throws Exception {
        openProducer(command);
        KafkaProducer<byte[], byte[]> producer = transactional(command);
        Map<String, Object> settings = base();
        settings.put("group.id", command.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("isolation.level", "read_committed");
        int taken = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.subscribe(Collections.singletonList(command.get("source").asText()));
            producer.beginTransaction();
            long deadline = System.nanoTime() + WAIT_S * 1_000_000_000L;
            while (taken < command.get("count").asInt() && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    producer.send(new ProducerRecord<>(
                        command.get("target").asText(), each.partition(), each.key(), each.value()));
                    taken++;
                }
            }
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (TopicPartition each : consumer.assignment())
                positions.put(each, new OffsetAndMetadata(consumer.position(each)));
            sendOffsets(producer, positions, consumer, command.get("group").asText());
            producer.flush();
            end(producer, command);
        }
        return JSON.createObjectNode().put("records", taken);
    }

    /** 2.4.1 knows the group's name alone; 4.x takes what the consumer knows of its membership. */
    static void sendOffsets(
            KafkaProducer<byte[], byte[]> producer, Map<TopicPartition, OffsetAndMetadata> positions,
            KafkaConsumer<byte[], byte[]> consumer, String group) throws Exception {
        try {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, ConsumerGroupMetadata.class)
                .invoke(producer, positions, KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer));
        } catch (NoSuchMethodException old) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class)
                .invoke(producer, positions, group);
        }
    }

    // Consuming

    JsonNode open(JsonNode command) throws Exception {
        Map<String, Object> settings = base();
        if (command.hasNonNull("group")) settings.put("group.id", command.get("group").asText());
        if (command.hasNonNull("instance")) settings.put("group.instance.id", command.get("instance").asText());
        int sessionTimeoutMs = command.path("session_timeout_ms").asInt(30000);
        String assignor = command.path("assignor").asText("range");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", command.path("reset").asText("earliest"));
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer."
            + switch (assignor) {
                case "sticky" -> "StickyAssignor";
                case "cooperative-sticky" -> "CooperativeStickyAssignor";
                case "roundrobin" -> "RoundRobinAssignor";
                default -> "RangeAssignor";
            });
        settings.put("session.timeout.ms", sessionTimeoutMs);
        settings.put("heartbeat.interval.ms", Math.min(250, sessionTimeoutMs / 4));
        settings.put("isolation.level", command.path("isolation").asText("read_committed"));
        settings.put("fetch.max.wait.ms", command.path("fetch_wait_ms").asInt(500));
        settings.put("fetch.min.bytes", command.path("fetch_min_bytes").asInt(1));
        settings.put("max.partition.fetch.bytes", command.path("max_partition_bytes").asInt(10_000_000));
        KafkaConsumer<byte[], byte[]> consumer = consumer(settings);
        if (command.hasNonNull("assign")) {
            assign(consumer, command.get("assign"));
        } else {
            List<String> topics = new ArrayList<>();
            for (JsonNode each : command.get("topics")) topics.add(each.asText());
            consumer.subscribe(topics);
        }
        Pump pump = new Pump(consumer);
        pumps.put(command.get("id").asText(), pump);
        pump.start();
        return JSON.createObjectNode();
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void assign(KafkaConsumer<byte[], byte[]> consumer, JsonNode places) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (JsonNode each : places) assigned.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt()));
        consumer.assign(assigned);
        for (int index = 0; index < assigned.size(); index++) {
            TopicPartition place = assigned.get(index);
            JsonNode at = places.get(index).get(2);
            consumer.seek(place, at.isInt() || at.isLong() ? at.asLong() : resolve(consumer, place, at));
        }
    }

    static long resolve(KafkaConsumer<byte[], byte[]> consumer, TopicPartition place, JsonNode at) {
        Set<TopicPartition> places = Collections.singleton(place);
        if (at.isObject()) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Collections.singletonMap(place, at.get("timestamp").asLong())).get(place);
            return found == null ? consumer.endOffsets(places).get(place) : found.offset();
        }
        return (at.asText().equals("earliest") ? consumer.beginningOffsets(places) : consumer.endOffsets(places)).get(place);
    }

    JsonNode take(JsonNode command) throws Exception {
        List<ConsumerRecord<byte[], byte[]>> taken =
            pump(command).take(command.get("count").asInt(), command.get("timeout_ms").asLong());
        ArrayNode records = JSON.createArrayNode();
        for (ConsumerRecord<byte[], byte[]> each : taken) {
            ObjectNode record = records.addObject();
            record.put("topic", each.topic()).put("p", each.partition()).put("o", each.offset()).put("t", each.timestamp());
            record.put("k", text(each.key())).put("v", text(each.value()));
            ArrayNode headers = record.putArray("h");
            for (Header header : each.headers()) headers.addArray().add(header.key()).add(text(header.value()));
        }
        return JSON.createObjectNode().set("records", records);
    }

    JsonNode assignment(JsonNode command) throws Exception {
        Pump pump = pump(command);
        ArrayNode found = JSON.createArrayNode();
        for (TopicPartition each : pump.call(() -> pump.consumer.assignment()))
            found.addArray().add(each.topic()).add(each.partition());
        return JSON.createObjectNode().set("partitions", found);
    }

    JsonNode pause(JsonNode command, boolean pause) throws Exception {
        Pump pump = pump(command);
        List<TopicPartition> places = new ArrayList<>();
        for (JsonNode each : command.get("partitions")) places.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt()));
        pump.call(() -> {
            if (pause) pump.consumer.pause(places);
            else pump.consumer.resume(places);
            return null;
        });
        return JSON.createObjectNode();
    }

    JsonNode commit(JsonNode command) throws Exception {
        Pump pump = pump(command);
        pump.call(() -> {
            pump.consumer.commitSync(offsetMap(command.get("offsets")));
            return null;
        });
        return JSON.createObjectNode();
    }

    Pump pump(JsonNode command) {
        return pumps.get(command.get("id").asText());
    }

    /** Polls one consumer, which only this thread touches, and keeps what came. */
    static class Pump extends Thread {
        final KafkaConsumer<byte[], byte[]> consumer;
        private final ConcurrentLinkedQueue<Runnable> calls = new ConcurrentLinkedQueue<>();
        private final List<ConsumerRecord<byte[], byte[]>> arrived = new ArrayList<>();
        private RuntimeException failure;
        private volatile boolean stopped;

        Pump(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
            setDaemon(true);
        }

        @Override
        public void run() {
            while (!stopped) {
                for (Runnable call = calls.poll(); call != null; call = calls.poll()) call.run();
                try {
                    keep(consumer.poll(Duration.ofMillis(50)));
                } catch (RuntimeException error) {
                    synchronized (this) {
                        failure = error;
                    }
                }
            }
            consumer.close(Duration.ofSeconds(WAIT_S));
        }

        private synchronized void keep(ConsumerRecords<byte[], byte[]> records) {
            for (ConsumerRecord<byte[], byte[]> record : records) arrived.add(record);
            if (!records.isEmpty()) notifyAll();
        }

        synchronized List<ConsumerRecord<byte[], byte[]>> take(int count, long timeoutMs) throws InterruptedException {
            long deadline = System.nanoTime() + timeoutMs * 1_000_000;
            for (long left = timeoutMs; arrived.size() < count && left > 0; left = (deadline - System.nanoTime()) / 1_000_000)
                wait(left);
            List<ConsumerRecord<byte[], byte[]>> first = arrived.subList(0, Math.min(count, arrived.size()));
            List<ConsumerRecord<byte[], byte[]>> taken = new ArrayList<>(first);
            first.clear();
            if (taken.isEmpty() && failure != null) {
                RuntimeException error = failure;
                failure = null;
                throw error;
            }
            return taken;
        }

        <T> T call(java.util.concurrent.Callable<T> function) throws Exception {
            CompletableFuture<T> answer = new CompletableFuture<>();
            calls.add(() -> {
                try {
                    answer.complete(function.call());
                } catch (Throwable error) {
                    answer.completeExceptionally(error);
                }
            });
            return answer.get(WAIT_S * 2, TimeUnit.SECONDS);
        }

        void close() throws Exception {
            stopped = true;
            join(WAIT_S * 1000);
            if (isAlive()) throw new IllegalStateException("the consumer did not close within " + WAIT_S + " s");
        }
    }

    // Asking

    JsonNode metadata() throws Exception {
        ObjectNode topics = JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(base())) {
            consumer.listTopics().forEach((name, partitions) -> topics.put(name, partitions.size()));
        }
        int brokers = admin().describeCluster().nodes().get(WAIT_S, TimeUnit.SECONDS).size();
        ObjectNode answer = JSON.createObjectNode().put("brokers", brokers);
        answer.set("topics", topics);
        return answer;
    }

    JsonNode offsets(JsonNode command) throws Exception {
        Map<TopicPartition, Long> found = new HashMap<>();
        if (command.get("at").asText().equals("max_timestamp")) {
            for (TopicPartition place : partitions(command)) found.put(place, offsetOfMaxTimestamp(place));
        } else {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(base())) {
                JsonNode at = command.get("at");
                JsonNode wanted = at.isTextual() ? at : JSON.createObjectNode().set("timestamp", at);
                for (TopicPartition place : partitions(command)) found.put(place, resolve(consumer, place, wanted));
            }
        }
        ArrayNode offsets = JSON.createArrayNode();
        for (TopicPartition place : partitions(command)) offsets.add(found.get(place));
        return JSON.createObjectNode().set("offsets", offsets);
    }

    /** Admin.listOffsets and OffsetSpec.maxTimestamp are younger than 2.4.1. */
    long offsetOfMaxTimestamp(TopicPartition place) throws Exception {
        Object spec = Class.forName("org.apache.kafka.clients.admin.OffsetSpec").getMethod("maxTimestamp").invoke(null);
        Object result = AdminClient.class.getMethod("listOffsets", Map.class)
            .invoke(admin(), Collections.singletonMap(place, spec));
        Method partitionResult = result.getClass().getMethod("partitionResult", TopicPartition.class);
        Object info = ((Future<?>) partitionResult.invoke(result, place)).get(WAIT_S, TimeUnit.SECONDS);
        return (Long) info.getClass().getMethod("offset").invoke(info);
    }

    JsonNode committed(JsonNode command) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> found = admin()
            .listConsumerGroupOffsets(command.get("group").asText())
            .partitionsToOffsetAndMetadata().get(WAIT_S, TimeUnit.SECONDS);
        ArrayNode offsets = JSON.createArrayNode();
        for (TopicPartition place : partitions(command))
            offsets.add(found.get(place) == null ? -1 : found.get(place).offset());
        return JSON.createObjectNode().set("offsets", offsets);
    }

    // Administering

    AdminClient admin() {
        if (admin == null) admin = (AdminClient) AdminClient.create(base());
        return admin;
    }

    static JsonNode done(Future<?> future) throws Exception {
        future.get(WAIT_S, TimeUnit.SECONDS);
        return JSON.createObjectNode();
    }

    JsonNode createTopic(JsonNode command) throws Exception {
        NewTopic topic = new NewTopic(topic(command), Optional.of(command.get("partitions").asInt()), Optional.of((short) 1));
        Map<String, String> configs = new HashMap<>();
        command.path("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        return done(admin().createTopics(Collections.singletonList(topic.configs(configs))).all());
    }

    JsonNode deleteRecords(JsonNode command) throws Exception {
        TopicPartition place = new TopicPartition(topic(command), command.get("partition").asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(command.get("before").asLong());
        long lowWatermark = admin().deleteRecords(Collections.singletonMap(place, before))
            .lowWatermarks().get(place).get(WAIT_S, TimeUnit.SECONDS).lowWatermark();
        return JSON.createObjectNode().put("low_watermark", lowWatermark);
    }

    JsonNode describeConfig(JsonNode command) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(command));
        Config found = admin().describeConfigs(Collections.singletonList(resource)).all().get(WAIT_S, TimeUnit.SECONDS).get(resource);
        ObjectNode configs = JSON.createObjectNode();
        for (org.apache.kafka.clients.admin.ConfigEntry each : found.entries()) configs.put(each.name(), each.value());
        return JSON.createObjectNode().set("configs", configs);
    }

    JsonNode alterConfig(JsonNode command) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        command.get("set").fields().forEachRemaining(each -> changes.add(new AlterConfigOp(
            new org.apache.kafka.clients.admin.ConfigEntry(each.getKey(), each.getValue().asText()), AlterConfigOp.OpType.SET)));
        for (JsonNode name : command.get("delete"))
            changes.add(new AlterConfigOp(
                new org.apache.kafka.clients.admin.ConfigEntry(name.asText(), ""), AlterConfigOp.OpType.DELETE));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(command));
        Map<ConfigResource, Collection<AlterConfigOp>> wanted = Collections.singletonMap(resource, changes);
        return done(admin().incrementalAlterConfigs(wanted).all());
    }

    JsonNode groups() throws Exception {
        ArrayNode names = JSON.createArrayNode();
        for (ConsumerGroupListing each : admin().listConsumerGroups().all().get(WAIT_S, TimeUnit.SECONDS)) names.add(each.groupId());
        return JSON.createObjectNode().set("groups", names);
    }

    JsonNode describeGroup(JsonNode command) throws Exception {
        String group = command.get("group").asText();
        ConsumerGroupDescription found = admin().describeConsumerGroups(Collections.singletonList(group))
            .all().get(WAIT_S, TimeUnit.SECONDS).get(group);
        ObjectNode answer = JSON.createObjectNode();
        answer.put("state", state(found)).put("assignor", found.partitionAssignor());
        ArrayNode members = answer.putArray("members");
        for (MemberDescription member : found.members()) {
            ArrayNode places = members.addArray();
            for (TopicPartition each : member.assignment().topicPartitions())
                places.addArray().add(each.topic()).add(each.partition());
        }
        return answer;
    }

    /** state() of 2.4.1 was replaced by groupState(). */
    static String state(ConsumerGroupDescription group) throws Exception {
        try {
            return ConsumerGroupDescription.class.getMethod("groupState").invoke(group).toString();
        } catch (NoSuchMethodException old) {
            return ConsumerGroupDescription.class.getMethod("state").invoke(group).toString();
        }
    }

    /** Admin.alterConsumerGroupOffsets is younger than 2.4.1. */
    JsonNode alterOffsets(JsonNode command) throws Exception {
        Object result = AdminClient.class.getMethod("alterConsumerGroupOffsets", String.class, Map.class)
            .invoke(admin(), command.get("group").asText(), offsetMap(command.get("offsets")));
        return done((Future<?>) result.getClass().getMethod("all").invoke(result));
    }

    // Forms

    static String topic(JsonNode command) {
        return command.get("topic").asText();
    }

    static List<TopicPartition> partitions(JsonNode command) {
        List<TopicPartition> places = new ArrayList<>();
        for (JsonNode each : command.get("partitions")) places.add(new TopicPartition(topic(command), each.asInt()));
        return places;
    }

    static Map<TopicPartition, OffsetAndMetadata> offsetMap(JsonNode offsets) {
        Map<TopicPartition, OffsetAndMetadata> map = new HashMap<>();
        for (JsonNode each : offsets)
            map.put(new TopicPartition(each.get(0).asText(), each.get(1).asInt()), new OffsetAndMetadata(each.get(2).asLong()));
        return map;
    }

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
