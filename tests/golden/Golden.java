import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;

/**
 * Kafka's side of the golden tests: prints lines on stdout for lines on stdin, with tabs between
 * cells. The random bytes come from Kafka's schemas; Kafka's generated class reads them, and what it
 * writes again is the golden result, with the JSON that Kafka makes of it.
 *
 *   apis                      -> api, key, name, lowest, highest stable version; one line each
 *   make CLASS VERSION SEED   -> made, hex, JSON; made from Kafka's own schema
 *   echo CLASS VERSION HEX    -> made, hex, JSON of those bytes, read and written by Kafka
 *
 * The last two print "unsupported" where this release lacks the version.
 */
public class Golden {
    private static final String PIECES = "abcXYZ019 ._-äß€漢𝄞\u0000\n";
    private static final Map<Type, Integer> INTEGER_BITS = Map.of(
        Type.INT8, 8, Type.INT16, 16, Type.INT32, 32, Type.INT64, 64);

    /** Kafka's schema leaves out the null mark of this struct; its class reads and writes it. */
    private static final String WRONG_IN_SCHEMA = "classic_member_metadata";

    private final Random random;

    private Golden(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] cells = line.split("\t", -1);
            switch (cells[0]) {
                case "apis" -> printApis(out);
                case "make" -> out.println(
                    make(Class.forName(cells[1]), Short.parseShort(cells[2]), cells[3]));
                case "echo" -> out.println(
                    echo(Class.forName(cells[1]), Short.parseShort(cells[2]), cells[3]));
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    private static void printApis(PrintStream out) {
        for (ApiMessageType api : ApiMessageType.values()) {
            out.println(String.join("\t", "api", String.valueOf(api.apiKey()), api.name,
                String.valueOf(api.lowestSupportedVersion()),
                String.valueOf(api.highestSupportedVersion(false))));
        }
    }

    private static boolean supports(Class<?> type, short version) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        return message.lowestSupportedVersion() <= version && version <= message.highestSupportedVersion();
    }

    private static String echo(Class<?> type, short version, String hex) throws Exception {
        return supports(type, version)
            ? answer(type, version, ByteBuffer.wrap(HexFormat.of().parseHex(hex)))
            : "unsupported";
    }

    private static String make(Class<?> type, short version, String seed) throws Exception {
        if (!supports(type, version)) {
            return "unsupported";
        }
        Schema schema = (Schema) type.getField("SCHEMA_" + version).get(null);
        Struct struct = new Golden(Long.parseLong(seed)).struct(schema, 0);
        ByteBuffer buffer = ByteBuffer.allocate(schema.sizeOf(struct));
        schema.write(buffer, struct);
        buffer.flip();
        return answer(type, version, buffer);
    }

    private static String answer(Class<?> type, short version, ByteBuffer bytes) throws Exception {
        Message message = (Message) type.getConstructor().newInstance();
        message.read(new ByteBufferAccessor(bytes), version);
        if (bytes.hasRemaining()) {
            throw new IllegalStateException(type + " version " + version + " left bytes over");
        }
        var cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        var json = Class.forName(type.getName() + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false);
        return "made\t" + HexFormat.of().formatHex(written.array()) + "\t" + json;
    }

    private Struct struct(Schema schema, int depth) throws Exception {
        var struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            struct.set(field, value(field.def.type, depth));
        }
        return struct;
    }

    private Object value(Type type, int depth) throws Exception {
        if (type.isNullable() && random.nextInt(4) == 0) {
            return null;
        }
        if (type.isArray()) {
            return array(type.arrayElementType().get(), depth);
        }
        if (type instanceof TaggedFields tagged) {
            return tags(tagged, depth);
        }
        if (type instanceof Schema schema) {
            return struct(schema, depth + 1);
        }
        return scalar(type);
    }

    private Object[] array(Type element, int depth) throws Exception {
        int size = random.nextInt(8) == 0 ? 0 : 2 + random.nextInt(2);
        if (random.nextInt(10) == 0 && !(element instanceof Schema)) {
            size = 30 + random.nextInt(120); // lengths of one and of two bytes, short cuts and not
        } else if (random.nextInt(12) == 0 && depth == 0) {
            size = 126 + random.nextInt(4);
        }
        var values = new Object[size];
        for (int i = 0; i < size; i++) {
            values[i] = value(element, depth + 1);
        }
        return values;
    }

    private NavigableMap<Integer, Object> tags(TaggedFields type, int depth) throws Exception {
        var tags = new TreeMap<Integer, Object>();
        for (Map.Entry<Integer, Field> known : knownTags(type).entrySet()) {
            if (random.nextInt(3) > 0 && !known.getValue().name.equals(WRONG_IN_SCHEMA)) {
                Object value = value(known.getValue().type, depth);
                if (value != null || known.getValue().type.isNullable()) {
                    tags.put(known.getKey(), value);
                }
            }
        }
        int unknown = Math.max(0, random.nextInt(5) - 2);
        for (int i = 0; i < unknown; i++) {
            int tag = random.nextBoolean() ? 100 + random.nextInt(20) : 1 << (8 + random.nextInt(22));
            tags.put(tag, new RawTaggedField(tag, bytes(random.nextInt(200))));
        }
        return tags;
    }

    @SuppressWarnings("unchecked")
    private static Map<Integer, Field> knownTags(TaggedFields type) throws Exception {
        var fields = TaggedFields.class.getDeclaredField("fields"); // no method for it in 3.9
        fields.setAccessible(true);
        return (Map<Integer, Field>) fields.get(type);
    }

    private Object scalar(Type type) {
        if (type == Type.BOOLEAN) {
            return random.nextBoolean();
        } else if (type == Type.UUID) {
            return new Uuid(random.nextLong(), random.nextLong());
        } else if (type == Type.FLOAT64) {
            return random.nextGaussian() * 1e6;
        } else if (type == Type.UINT16) {
            return random.nextInt(1 << 16);
        } else if (type == Type.UNSIGNED_INT32) {
            return random.nextLong() & 0xFFFFFFFFL;
        } else if (INTEGER_BITS.containsKey(type)) {
            return integer(type);
        }
        String name = ((Type.DocumentedType) type).typeName();
        if (name.endsWith("STRING")) {
            return string();
        } else if (name.endsWith("BYTES")) {
            return ByteBuffer.wrap(bytes(blobSize()));
        } else if (name.endsWith("RECORDS")) {
            return records(bytes(blobSize()));
        }
        throw new IllegalArgumentException("what is a " + name + "?");
    }

    private Object integer(Type type) {
        int bits = INTEGER_BITS.get(type);
        long value = switch (random.nextInt(6)) {
            case 0 -> -1;
            case 1 -> 0;
            case 2 -> Long.MAX_VALUE >> (64 - bits);
            case 3 -> Long.MIN_VALUE >> (64 - bits);
            default -> random.nextLong() >> (64 - bits);
        };
        if (type == Type.INT8) {
            return (byte) value;
        } else if (type == Type.INT16) {
            return (short) value;
        }
        return type == Type.INT32 ? (Object) (int) value : (Object) value;
    }

    private String string() {
        int[] points = PIECES.codePoints().toArray();
        int size = random.nextInt(10) == 0 ? 120 + random.nextInt(300) : random.nextInt(12);
        var text = new StringBuilder();
        for (int i = 0; i < size; i++) {
            text.appendCodePoint(points[random.nextInt(points.length)]);
        }
        return text.toString();
    }

    /** Bytes as Kafka's class for records, whose package differs between the releases. */
    private static Object records(byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.allocate(4 + bytes.length).putInt(bytes.length).put(bytes);
        return Type.RECORDS.read(buffer.flip());
    }

    private int blobSize() {
        return random.nextInt(8) == 0 ? 120 + random.nextInt(20000) : random.nextInt(40);
    }

    private byte[] bytes(int size) {
        var bytes = new byte[size];
        random.nextBytes(bytes);
        return bytes;
    }
}
