// Java's client, one transaction after the other: prints the microseconds that each took.
//
// Arguments: bootstrap, topic, measured transactions, unmeasured ones, size of values, and how many
// records each transaction has (0 or 1). Compiled on Kafka's jars.

import java.util.Properties;
import java.util.UUID;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Transactions {
    public static void main(String[] args) {
        String topic = args[1];
        int measured = Integer.parseInt(args[2]);
        int unmeasured = Integer.parseInt(args[3]);
        byte[] value = new byte[Integer.parseInt(args[4])];
        boolean records = args[5].equals("1");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("transactional.id", "benchmark-" + UUID.randomUUID());
        settings.put("linger.ms", "0");
        ByteArraySerializer bytes = new ByteArraySerializer();
        long[] nanos = new long[measured];
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            producer.initTransactions();
            for (int i = -unmeasured; i < measured; i++) {
                long began = System.nanoTime();
                producer.beginTransaction();
                if (records) {
                    producer.send(new ProducerRecord<>(topic, value));
                }
                producer.commitTransaction();
                if (i >= 0) {
                    nanos[i] = System.nanoTime() - began;
                }
            }
        }
        StringBuilder out = new StringBuilder();
        for (long one : nanos) {
            out.append(one / 1000.0).append('\n');
        }
        System.out.print(out);
    }
}
