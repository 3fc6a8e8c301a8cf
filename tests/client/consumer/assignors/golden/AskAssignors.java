// What Kafka's assignors make of random groups: java -cp 'LIBS/*' AskAssignors.java > assignments.json
// Range and round robin are compared as they are; sticky only from scratch, and by its figures otherwise, because
// with owners it depends on the order of a HashMap.
import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

public class AskAssignors {
    static final Random RANDOM = new Random(20);

    static Cluster cluster(Map<String, Integer> counts) {
        Node node = new Node(0, "host", 1);
        List<PartitionInfo> infos = new ArrayList<>();
        counts.forEach((topic, count) -> {
            for (int i = 0; i < count; i++)
                infos.add(new PartitionInfo(topic, i, node, new Node[] {node}, new Node[] {node}));
        });
        return new Cluster("id", List.of(node), infos, Set.of(), Set.of());
    }

    static String text(Collection<?> items) {
        return items.stream().map(item -> "\"" + item + "\"").collect(Collectors.joining(",", "[", "]"));
    }

    static List<TopicPartition> sorted(List<TopicPartition> partitions) {
        List<TopicPartition> copy = new ArrayList<>(partitions);
        copy.sort(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
        return copy;
    }

    public static void main(String[] arguments) {
        List<String> cases = new ArrayList<>();
        for (int round = 0; round < 160; round++) {
            Map<String, Integer> counts = new TreeMap<>();
            for (int i = 0, n = 1 + RANDOM.nextInt(4); i < n; i++)
                counts.put("t" + i, RANDOM.nextInt(8));
            boolean alike = RANDOM.nextBoolean();
            boolean owning = RANDOM.nextInt(3) == 0;
            Map<String, Subscription> group = new TreeMap<>();
            List<TopicPartition> free = new ArrayList<>();
            counts.forEach((topic, count) -> {
                for (int i = 0; i < count; i++) free.add(new TopicPartition(topic, i));
            });
            Collections.shuffle(free, RANDOM);
            for (int i = 0, n = 1 + RANDOM.nextInt(6); i < n; i++) {
                List<String> topics = new ArrayList<>(counts.keySet());
                if (!alike) topics.removeIf(topic -> RANDOM.nextInt(3) == 0);
                if (RANDOM.nextInt(10) == 0) topics.add("missing");
                List<TopicPartition> owned = new ArrayList<>();
                if (owning)
                    for (int j = RANDOM.nextInt(6); j > 0 && !free.isEmpty(); j--) {
                        TopicPartition partition = free.remove(free.size() - 1);
                        if (topics.contains(partition.topic())) owned.add(partition);
                    }
                Subscription subscription = new Subscription(topics, null, owned, 5, Optional.empty());
                if (RANDOM.nextInt(4) == 0) subscription.setGroupInstanceId(Optional.of("i" + RANDOM.nextInt(1000)));
                group.put("m" + RANDOM.nextInt(1000), subscription);
            }
            List<String> members = new ArrayList<>();
            group.forEach((id, s) -> members.add(String.format("{\"id\":\"%s\",\"instance\":%s,\"topics\":%s,\"owned\":%s}",
                id, s.groupInstanceId().map(name -> "\"" + name + "\"").orElse("null"), text(s.topics()), text(s.ownedPartitions()))));
            List<String> answers = new ArrayList<>();
            for (ConsumerPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor(), new CooperativeStickyAssignor())) {
                Map<String, Assignment> shares = assignor.assign(cluster(counts), new GroupSubscription(group)).groupAssignment();
                answers.add("\"" + assignor.name() + "\":" + new TreeMap<>(shares).entrySet().stream()
                    .map(entry -> "\"" + entry.getKey() + "\":" + text(sorted(entry.getValue().partitions())))
                    .collect(Collectors.joining(",", "{", "}")));
            }
            String sizes = counts.entrySet().stream().map(e -> "\"" + e.getKey() + "\":" + e.getValue()).collect(Collectors.joining(",", "{", "}"));
            cases.add("{\"counts\":" + sizes + ",\"members\":[" + String.join(",", members) + "]," + String.join(",", answers) + "}");
        }
        System.out.println("[\n" + String.join(",\n", cases) + "\n]");
    }
}
