import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
// Exit and AppInfoParser: up to 4.3 in the first, from 4.4 in the second.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;

/**
 * Runs Kafka's command-line tools inside one JVM: {"op": "run", "tool": class, "arguments": [...], "stdin": text}.
 * What would end the process (Kafka's Exit, or System.exit through it) ends the tool alone.
 */
public class KafkaTools {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int WAIT_S = 90;

    /** The status of a tool's first exit: some catch what ends them and exit once more. */
    static volatile Integer exited;

    /** What a tool wants done when its process ends. */
    static final Queue<Runnable> hooks = new ConcurrentLinkedQueue<>();

    static class Exited extends Error {
        final int status;

        Exited(int status) {
            super(null, null, false, false);
            this.status = status;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        // What a tool's threads still print when it has ended must not get among the answers.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.Procedure exit = (status, message) -> {
            if (message != null) System.err.println(message);
            throw new Exited(exited == null ? (exited = status) : exited);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        out.println("{\"ok\": {\"version\": \"" + AppInfoParser.getVersion() + "\"}}");
        ExecutorService worker = Executors.newCachedThreadPool(KafkaTools::daemon);
        for (String line = in.readLine(); line != null; line = in.readLine())
            out.println(run(worker, JSON.readTree(line)));
        Runtime.getRuntime().halt(0);
    }

    static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    }

    static String run(ExecutorService worker, JsonNode command) throws Exception {
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        InputStream realIn = System.in;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, "UTF-8"));
        System.setErr(new PrintStream(err, true, "UTF-8"));
        System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        ObjectNode answer = JSON.createObjectNode();
        try {
            Future<Integer> status = worker.submit(() -> {
                int result = call(command);
                for (Runnable hook = hooks.poll(); hook != null; hook = hooks.poll()) hook.run();
                return result;
            });
            answer.put("exit", status.get(WAIT_S, TimeUnit.SECONDS));
        } catch (TimeoutException error) {
            return JSON.createObjectNode().put("error", "Timeout")
                .put("message", command.get("tool").asText() + " did not end within " + WAIT_S + " s: " + out + err).toString();
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(realOut);
            System.setErr(realErr);
            System.setIn(realIn);
        }
        answer.put("out", out.toString("UTF-8")).put("err", err.toString("UTF-8"));
        return JSON.createObjectNode().set("ok", answer).toString();
    }

    static int call(JsonNode command) throws Exception {
        String[] arguments = JSON.convertValue(command.get("arguments"), String[].class);
        exited = null;
        try {
            Class.forName(command.get("tool").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited) return ((Exited) error.getCause()).status;
            StringWriter trace = new StringWriter();
            error.getCause().printStackTrace(new PrintWriter(trace));
            System.err.println(trace);
            return 1;
        }
    }
}
