import java.lang.reflect.Field;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints Kafka's configurations, one line each: whose, name, kind, how it may change, whether it is
 * internal, limits, default, the broker's name of it. Tabs in between.
 */
public class ConfigTable {
    private static final Map<String, String> MODES = DynamicBrokerConfig.dynamicConfigUpdateModes();

    public static void main(String[] args) throws Exception {
        print("BROKER", AbstractKafkaConfig.CONFIG_DEF);
        print("TOPIC", (ConfigDef) hidden(LogConfig.class, null, "CONFIG"));
        print("GROUP", GroupConfig.CONFIG_DEF);
        print("CLIENT_METRICS", ClientMetricsConfigs.configDef());
    }

    private static void print(String owner, ConfigDef definitions) throws Exception {
        for (ConfigDef.ConfigKey key : definitions.configKeys().values()) {
            System.out.println(String.join("\t",
                owner,
                key.name,
                key.type.toString(),
                owner.equals("BROKER") ? MODES.getOrDefault(key.name, "read-only") : "dynamic",
                String.valueOf(key.internalConfig),
                limits(key.validator),
                defaultOf(key),
                synonym(owner, key.name)));
        }
    }

    private static String defaultOf(ConfigDef.ConfigKey key) {
        Object value = key.defaultValue;
        if (value == null || value == ConfigDef.NO_DEFAULT_VALUE) {
            return "~";
        }
        return ConfigDef.convertToString(value, key.type);
    }

    private static String synonym(String owner, String name) {
        if (owner.equals("TOPIC")) {
            return ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.getOrDefault(name, "");
        }
        return owner.equals("GROUP") ? GroupConfig.brokerSynonym(name).orElse("") : "";
    }

    private static String limits(ConfigDef.Validator validator) throws Exception {
        if (validator == null) {
            return "*";
        }
        String text = validator.toString();
        if (validator instanceof ConfigDef.Range) {
            Object low = hidden(ConfigDef.Range.class, validator, "min");
            Object high = hidden(ConfigDef.Range.class, validator, "max");
            return (low == null ? "" : low) + ".." + (high == null ? "" : high);
        }
        if (validator instanceof ConfigDef.ValidList) {
            Object empty = hidden(ConfigDef.ValidList.class, validator, "isEmptyAllowed");
            String choices = text.replace("[", "").replace("]", "").replace(", ", "|");
            return (Boolean.TRUE.equals(empty) ? "list=" : "filled=") + choices;
        }
        if (validator instanceof ConfigDef.ValidString) {
            return "=" + bare(text);
        }
        if (validator instanceof ConfigDef.CaseInsensitiveValidString) {
            return "~" + bare(text.substring(text.indexOf('[')));
        }
        if (validator instanceof ConfigDef.NonEmptyString) {
            return "filled";
        }
        return text.equals("[1,...,9] or -1") ? "-1|1..9" : validator.getClass().getName();
    }

    private static String bare(String list) {
        return list.substring(1, list.length() - 1).replace(", ", "|");
    }

    private static Object hidden(Class<?> owner, Object of, String name) throws Exception {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }
}
