// What Kafka's assignors make of random groups with racks: java -cp 'LIBS/*' AskRackAssignors.java > rack_assignments.json
// (kafka-clients 4.4.0). Range is compared as it is; sticky by its figures, because there are many answers as good.
import java.util.*;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

public class AskRackAssignors {
    static final Random RANDOM = new Random(881);

    static String text(Collection<?> items) {
        return items.stream().map(item -> "\"" + item + "\"").collect(Collectors.joining(",", "[", "]"));
    }

    static List<TopicPartition> sorted(Collection<TopicPartition> partitions) {
        List<TopicPartition> copy = new ArrayList<>(partitions);
        copy.sort(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
        return copy;
    }

    // as an eager member reports what it had
    static Subscription withUserData(Subscription subscription) {
        StickyAssignor assignor = new StickyAssignor();
        assignor.onAssignment(new Assignment(subscription.ownedPartitions()), new ConsumerGroupMetadata("g", 5, "m", Optional.empty()));
        Subscription told = new Subscription(subscription.topics(), assignor.subscriptionUserData(Set.of()), List.of(), 5, subscription.rackId());
        told.setGroupInstanceId(subscription.groupInstanceId());
        return told;
    }

    public static void main(String[] arguments) {
        List<String> cases = new ArrayList<>();
        for (int round = 0; round < 200; round++) {
            int racks = 1 + RANDOM.nextInt(4);
            List<Node> nodes = new ArrayList<>();
            for (int i = 0; i < racks; i++)
                nodes.add(new Node(i, "host", 1, RANDOM.nextInt(12) == 0 ? null : "r" + i));
            int factor = 1 + RANDOM.nextInt(Math.min(racks, 3));
            boolean sameSize = RANDOM.nextBoolean();
            boolean spread = RANDOM.nextBoolean();
            int size = 1 + RANDOM.nextInt(9);
            List<PartitionInfo> infos = new ArrayList<>();
            Map<String, List<String>> replicas = new TreeMap<>();
            for (int t = 0, n = 1 + RANDOM.nextInt(4); t < n; t++) {
                List<String> told = new ArrayList<>();
                for (int p = 0, count = sameSize ? size : 1 + RANDOM.nextInt(9); p < count; p++) {
                    int first = spread ? p : RANDOM.nextInt(racks);
                    Node[] placed = new Node[factor];
                    for (int r = 0; r < factor; r++) placed[r] = nodes.get((first + r) % racks);
                    infos.add(new PartitionInfo("t" + t, p, placed[0], placed, placed));
                    told.add(text(Arrays.stream(placed).map(Node::rack).filter(Objects::nonNull).collect(Collectors.toList())));
                }
                replicas.put("t" + t, told);
            }
            Cluster cluster = new Cluster("id", nodes, infos, Set.of(), Set.of());
            boolean alike = RANDOM.nextInt(3) > 0;
            boolean owning = RANDOM.nextBoolean();
            List<TopicPartition> free = new ArrayList<>();
            infos.forEach(info -> free.add(new TopicPartition(info.topic(), info.partition())));
            Collections.shuffle(free, RANDOM);
            Map<String, Subscription> group = new TreeMap<>();
            for (int i = 0, n = 1 + RANDOM.nextInt(7); i < n; i++) {
                List<String> topics = new ArrayList<>(replicas.keySet());
                if (!alike) topics.removeIf(topic -> RANDOM.nextInt(3) == 0);
                List<TopicPartition> owned = new ArrayList<>();
                if (owning)
                    for (int j = RANDOM.nextInt(6); j > 0 && !free.isEmpty(); j--) {
                        TopicPartition partition = free.remove(free.size() - 1);
                        if (topics.contains(partition.topic())) owned.add(partition);
                    }
                String rack = RANDOM.nextInt(8) == 0 ? null : "r" + RANDOM.nextInt(racks + RANDOM.nextInt(2));
                Subscription subscription = new Subscription(topics, null, owned, 5, Optional.ofNullable(rack));
                if (RANDOM.nextInt(4) == 0) subscription.setGroupInstanceId(Optional.of("i" + RANDOM.nextInt(1000)));
                group.put("m" + RANDOM.nextInt(1000), subscription);
            }
            List<String> members = new ArrayList<>();
            group.forEach((id, s) -> members.add(String.format("{\"id\":\"%s\",\"instance\":%s,\"rack\":%s,\"topics\":%s,\"owned\":%s}",
                id, s.groupInstanceId().map(name -> "\"" + name + "\"").orElse("null"),
                s.rackId().map(name -> "\"" + name + "\"").orElse("null"), text(s.topics()), text(s.ownedPartitions()))));
            List<String> answers = new ArrayList<>();
            for (ConsumerPartitionAssignor assignor : List.of(new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor())) {
                if (assignor.name().equals("sticky"))
                    group.replaceAll((id, s) -> withUserData(s));
                Map<String, Assignment> shares = assignor.assign(cluster, new GroupSubscription(group)).groupAssignment();
                answers.add("\"" + assignor.name() + "\":" + new TreeMap<>(shares).entrySet().stream()
                    .map(entry -> "\"" + entry.getKey() + "\":" + text(sorted(entry.getValue().partitions())))
                    .collect(Collectors.joining(",", "{", "}")));
            }
            String placed = replicas.entrySet().stream().map(e -> "\"" + e.getKey() + "\":[" + String.join(",", e.getValue()) + "]")
                .collect(Collectors.joining(",", "{", "}"));
            cases.add("{\"racks\":" + placed + ",\"members\":[" + String.join(",", members) + "]," + String.join(",", answers) + "}");
        }
        System.out.println("[\n" + String.join(",\n", cases) + "\n]");
    }
}
