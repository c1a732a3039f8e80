import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the command line tools of Kafka one after the other, or beside each other, in one JVM: each
 * start of one would cost a second. `java_tools` writes the orders; every one is a line:
 *
 *   run STDIN CLASS ARGUMENT...    to its end; returns its status and output
 *   start CLASS ARGUMENT...        returns its number
 *   output NUMBER                  what it has printed so far
 *   stop NUMBER                    as Ctrl-C does: runs its shutdown hooks; returns what `run` does
 *
 * Arguments and results are in Base64: "STATUS OUT ERR", the status 0 where a tool didn't exit.
 */
public class Driver {
    /** What a tool's exit becomes: the driver goes on. */
    private static final class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    private static final class Tool extends Thread {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        private final String main;
        private final String[] arguments;
        volatile Integer status;

        Tool(String name, String[] arguments) {
            super(new ThreadGroup(name), name);
            this.main = name;
            this.arguments = arguments;
            setDaemon(true);
        }

        @Override
        public void run() {
            current.set(this);
            last = this;
            try {
                Method start = Class.forName(main).getMethod("main", String[].class);
                start.invoke(null, (Object) arguments);
            } catch (InvocationTargetException wrapped) {
                if (!(wrapped.getCause() instanceof Exited)) {
                    wrapped.getCause().printStackTrace(new PrintStream(err, true));
                    exited(70);
                }
            } catch (ReflectiveOperationException wrong) {
                wrong.printStackTrace(new PrintStream(err, true));
                exited(71);
            }
            finish();
        }

        /** What the end of a JVM would do, once: run the shutdown hooks that the tool left. */
        void finish() {
            List<Thread> due = new ArrayList<>();
            synchronized (hookClass) {
                for (Object one : hooks.keySet()) {
                    Thread hook = (Thread) one;
                    if (hook.getThreadGroup() == getThreadGroup()) due.add(hook);
                }
            }
            for (Thread hook : due) {
                if (!Runtime.getRuntime().removeShutdownHook(hook)) continue;
                hook.start();
                try {
                    hook.join();
                } catch (InterruptedException never) {
                    throw new IllegalStateException(never);
                }
            }
        }

        synchronized void exited(int with) {
            if (status == null) status = with;  // a tool may catch its own exit and exit again
        }

        String answer() {
            return (status == null ? 0 : status) + " " + encoded(out) + " " + encoded(err);
        }
    }

    private static final InheritableThreadLocal<Tool> current = new InheritableThreadLocal<>();

    private static volatile Tool last;
    private static Class<?> hookClass;
    private static Map<?, ?> hooks;  // those of the JVM, which guards them by this class

    private static PrintStream routed(PrintStream otherwise, boolean toOut) {
        return new PrintStream(new OutputStream() {
            private OutputStream target() {
                Tool tool = current.get();
                return tool == null ? otherwise : toOut ? tool.out : tool.err;
            }

            @Override
            public void write(int one) throws java.io.IOException {
                target().write(one);
            }

            @Override
            public void write(byte[] bytes, int from, int length) throws java.io.IOException {
                target().write(bytes, from, length);
            }
        }, true, StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        String text = Base64.getEncoder().encodeToString(bytes.toByteArray());
        return text.isEmpty() ? "-" : text;
    }

    private static Tool tool(String[] words, int from) {
        String[] arguments = new String[words.length - from - 1];
        System.arraycopy(words, from + 1, arguments, 0, arguments.length);
        return new Tool(words[from], arguments);
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        Exit.Procedure exit = (status, message) -> {
            Tool tool = current.get();
            if (tool != null) tool.exited(status);
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        hookClass = Class.forName("java.lang.ApplicationShutdownHooks");
        Field kept = hookClass.getDeclaredField("hooks");
        kept.setAccessible(true);
        hooks = (Map<?, ?>) kept.get(null);
        PrintStream errors = System.err;
        System.setOut(routed(errors, true));
        System.setErr(routed(errors, false));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {  // some exit by themselves
            Tool tool = last;
            if (tool != null) errors.println(tool.main + " ended the JVM: " + tool.out + tool.err);
        }));
        Map<Integer, Tool> running = new HashMap<>();
        BlockingQueue<String> orders = new LinkedBlockingQueue<>();
        Scanner input = new Scanner(System.in, StandardCharsets.UTF_8);
        new Thread(() -> {
            while (input.hasNextLine()) orders.add(input.nextLine());
            Runtime.getRuntime().halt(0);  // tools that still run are not waited for
        }).start();
        while (true) {
            String[] words = orders.take().split(" ");
            for (int i = 1; i < words.length; i++) {
                String word = words[i].equals("-") ? "" : words[i];
                words[i] = new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
            }
            answers.println(obey(words, running));
            answers.flush();
        }
    }

    private static String obey(String[] words, Map<Integer, Tool> running) throws Exception {
        switch (words[0]) {
            case "run": {
                System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
                Tool tool = tool(words, 2);
                tool.start();
                tool.join();
                return tool.answer();
            }
            case "start": {
                int number = running.size();
                running.put(number, tool(words, 1));
                running.get(number).start();
                return Integer.toString(number);
            }
            case "output":
                return running.get(Integer.parseInt(words[1])).answer();
            case "stop": {
                Tool tool = running.get(Integer.parseInt(words[1]));
                tool.finish();
                tool.join();
                return tool.answer();
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
