// Asks the assignors of Apache Kafka's client. Run as a single file on the class path of kafka-clients.
//
// Reads lines of tab-separated fields from stdin. Names are as they are, bytes are in hex, "-" is
// null, lists are separated by commas, and a partition is topic:number.
//
//   leader ASSIGNOR                             a new instance, which the lines below call
//   topic NAME RACKS                            RACKS: of each partition, "/" between racks
//   member ID INSTANCE SUBSCRIPTION
//   assign                                      returns the assignments of these members
//   userdata ASSIGNOR GENERATION ASSIGNMENT     returns the user data of the next subscription
//   subscription TOPICS USERDATA OWNED GENERATION RACK      returns its bytes
//   read SUBSCRIPTION                           returns these five fields
//
// A result is a line; of `assign` it has a field for each member: its partitions, "=", its bytes;
// "error" and the exception where Java throws.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assign {
    private static final String NULL = "-";

    private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, Node> nodes = new LinkedHashMap<>();
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final List<String[]> members = new ArrayList<>();
    private ConsumerPartitionAssignor leader;

    public static void main(String[] args) throws Exception {
        var program = new Assign();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            program.take(line.split("\t", -1));
        }
        program.out.flush();
    }

    private void take(String[] line) {
        switch (line[0]) {
            case "leader" -> leader = assignor(line[1]);
            case "topic" -> topic(line[1], line[2]);
            case "member" -> members.add(line);
            default -> answer(line);
        }
    }

    private void answer(String[] line) {
        try {
            out.println(switch (line[0]) {
                case "assign" -> assign();
                case "userdata" -> userData(assignor(line[1]), Integer.parseInt(line[2]), line[3]);
                case "subscription" -> subscription(line);
                case "read" -> read(line[1]);
                default -> throw new IllegalArgumentException("what is " + line[0] + "?");
            });
        } catch (RuntimeException e) {
            out.println("error\t" + e.getClass().getSimpleName());
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException("what is " + name + "?");
        };
    }

    private void topic(String name, String racks) {
        for (String some : racks.split(",", -1)) {
            Node[] replicas = Arrays.stream(some.split("/")).map(this::node).toArray(Node[]::new);
            partitions.add(new PartitionInfo(
                name, partitions.size() - first(name), replicas[0], replicas, replicas));
        }
    }

    /** How many partitions there are of other topics, which all come before. */
    private int first(String topic) {
        int others = 0;
        while (others < partitions.size() && !partitions.get(others).topic().equals(topic)) {
            others++;
        }
        return others;
    }

    private Node node(String rack) {
        return nodes.computeIfAbsent(
            rack, one -> new Node(nodes.size(), "localhost", 9092, one.isEmpty() ? null : one));
    }

    private String assign() {
        var cluster = new Cluster("one", new ArrayList<>(nodes.values()), partitions, Set.of(), Set.of());
        var subscriptions = new HashMap<String, Subscription>(); // as the consumer's coordinator does
        for (String[] member : members) {
            var subscription = ConsumerProtocol.deserializeSubscription(bytes(member[3]));
            subscription.setGroupInstanceId(Optional.ofNullable(text(member[2])));
            subscriptions.put(member[1], subscription);
        }
        var ids = members.stream().map(member -> member[1]).toList();
        nodes.clear();
        members.clear();
        partitions.clear();
        Map<String, Assignment> shares =
            leader.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment();
        return ids.stream().map(id -> share(shares.get(id))).collect(Collectors.joining("\t"));
    }

    private static String share(Assignment share) {
        return partitions(share.partitions()) + "=" + hex(ConsumerProtocol.serializeAssignment(share));
    }

    private static String userData(ConsumerPartitionAssignor member, int generation, String share) {
        member.onAssignment(
            ConsumerProtocol.deserializeAssignment(bytes(share)),
            new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        return hex(member.subscriptionUserData(Set.of()));
    }

    private static String subscription(String[] line) {
        return hex(ConsumerProtocol.serializeSubscription(new Subscription(
            list(line[1]), bytes(line[2]), partitions(line[3]), Integer.parseInt(line[4]),
            Optional.ofNullable(text(line[5])))));
    }

    private static String read(String data) {
        Subscription found = ConsumerProtocol.deserializeSubscription(bytes(data));
        return String.join("\t",
            String.join(",", found.topics()), hex(found.userData()), partitions(found.ownedPartitions()),
            found.generationId().orElse(-1).toString(), found.rackId().orElse(NULL));
    }

    private static String partitions(List<TopicPartition> some) {
        return some.stream().map(one -> one.topic() + ":" + one.partition()).collect(Collectors.joining(","));
    }

    private static List<TopicPartition> partitions(String some) {
        return list(some).stream().map(one -> one.split(":"))
            .map(one -> new TopicPartition(one[0], Integer.parseInt(one[1]))).toList();
    }

    private static List<String> list(String some) {
        return some.isEmpty() ? List.of() : List.of(some.split(","));
    }

    private static String text(String field) {
        return field.equals(NULL) ? null : field;
    }

    private static ByteBuffer bytes(String field) {
        return field.equals(NULL) ? null : ByteBuffer.wrap(HexFormat.of().parseHex(field));
    }

    private static String hex(ByteBuffer data) {
        if (data == null) {
            return NULL;
        }
        var found = new byte[data.remaining()];
        data.duplicate().get(found);
        return HexFormat.of().formatHex(found);
    }
}
