package calve.peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The frame of a Java peer: one request a line on stdin, one answer a line on stdout, as in
 * interop/peers/python/worker.py. What libraries print goes to stderr, which the suite logs.
 */
public final class Worker {
    public static final ObjectMapper JSON = new ObjectMapper();

    /** One operation of a peer. */
    public interface Handler {
        ObjectNode handle(JsonNode request) throws Exception;
    }

    private Worker() {}

    public static void serve(Map<String, Handler> handlers) throws Exception {
        PrintStream replies = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            replies.println(answer(handlers, line));
        }
    }

    private static ObjectNode answer(Map<String, Handler> handlers, String line) {
        try {
            JsonNode request = JSON.readTree(line);
            Handler handler = handlers.get(request.path("op").asText());
            if (handler == null) {
                throw new IllegalArgumentException("no such op: " + line);
            }
            return handler.handle(request);
        } catch (Throwable e) { // an answer too: the suite reports it and goes on
            return JSON.createObjectNode().put("error", describe(e));
        }
    }

    /** What went wrong, cause by cause, and where the first cause was thrown: short enough to be shown whole. */
    private static String describe(Throwable e) {
        StringBuilder out = new StringBuilder();
        Throwable root = e;
        for (Throwable t = e; t != null; t = t.getCause()) {
            out.append(t == e ? "" : "\ncaused by ").append(t);
            root = t;
        }
        StackTraceElement[] frames = root.getStackTrace();
        for (int i = 0; i < Math.min(frames.length, 12); i++) {
            out.append("\n\tat ").append(frames[i]);
        }
        return out.toString();
    }
}
