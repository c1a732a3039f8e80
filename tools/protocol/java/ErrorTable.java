import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints Kafka's error table, one line a code: code, name, retriable, metadata is stale, message. */
public class ErrorTable {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            Throwable exception = error.exception();
            System.out.println(String.join("\t",
                String.valueOf(error.code()),
                error.name(),
                String.valueOf(exception instanceof RetriableException),
                String.valueOf(exception instanceof InvalidMetadataException),
                exception == null ? "" : error.message()));
        }
    }
}
