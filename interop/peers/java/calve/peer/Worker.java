package calve.peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * The frame of a Java peer: one request a line on stdin, one answer a line on stdout, as in
 * interop/peers/python/worker.py. What libraries print goes to stderr, which the suite logs.
 */
final class Worker {
    static final ObjectMapper JSON = new ObjectMapper();

    /** One operation of a peer. */
    interface Handler {
        ObjectNode handle(JsonNode request) throws Exception;
    }

    private Worker() {}

    static void serve(Map<String, Handler> handlers) throws Exception {
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
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            return JSON.createObjectNode().put("error", trace.toString());
        }
    }
}
