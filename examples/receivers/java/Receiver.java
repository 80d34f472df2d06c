import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Receives signed CloudEvents with nothing but the JDK, and keeps each event once, by its id, in a file.
 *
 * <pre>export EVENTLOG_SINK_SIGNING_SECRET=whsec_... # for the publisher as well
 * java Receiver.java events.tsv 8080 20</pre>
 *
 * 20 is the number of seconds after which a request is dropped: less than sink.timeout, after which the publisher sends
 * its event again.
 *
 * In eventlog.toml: [sink] type = "http", url = "http://localhost:8080/events"; [format] type = "cloudevents",
 * mode = "structured": one event per request, whole in the body, which alone is signed.
 */
public class Receiver {
    /** The most bytes of an event. */
    private static final int LIMIT = 16 << 20;

    /** A text, a bracket, or what stands between them. */
    private static final Pattern TOKEN = Pattern.compile("\"((?:[^\"\\\\]|\\\\.)*+)\"|[\\[\\]{}:,]|[^\\[\\]{}:,\"]++");

    private final SecretKeySpec secret;

    private final FileChannel file;
    private final Set<String> known = new HashSet<>();

    private final long patience;

    Receiver(Path path, double seconds, String secret) throws IOException {
        this.secret = new SecretKeySpec(Base64.getDecoder().decode(secret.replace("whsec_", "")), "HmacSHA256");
        patience = (long) (seconds * 1e9);
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        String kept = Files.readString(path, StandardCharsets.ISO_8859_1);
        // What a crash has left of a last line was never answered, and comes again.
        int end = kept.lastIndexOf('\n') + 1;
        file.truncate(end).position(end);
        kept.substring(0, end).lines().forEach(line -> known.add(line.substring(0, line.lastIndexOf('\t'))));
    }

    /** Whether the publisher signed this body in the last five minutes (Standard Webhooks). */
    private boolean isSigned(HttpExchange exchange, byte[] body) {
        String moment = exchange.getRequestHeaders().getFirst("webhook-timestamp");
        String given = exchange.getRequestHeaders().getFirst("webhook-signature");
        if (given == null || moment == null || !moment.matches("\\d{1,12}")
                || Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(moment)) > 300) {
            return false;
        }
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(secret);
            String id = exchange.getRequestHeaders().getFirst("webhook-id");
            mac.update((id + "." + moment + ".").getBytes(StandardCharsets.UTF_8));
            byte[] expected = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes();
            boolean found = false;
            for (String one : given.split(" ")) {
                found |= MessageDigest.isEqual(expected, one.getBytes());
            }
            return found;
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error);
        }
    }

    /** The members of a JSON object that are texts, as they are written there. */
    private static Map<String, String> texts(String json) {
        Map<String, String> found = new HashMap<>();
        Matcher token = TOKEN.matcher(json);
        String name = null;
        boolean isValue = false;
        for (int depth = 0; token.find(); ) {
            String text = token.group(1);
            if (depth == 1 && text != null && isValue) {
                found.put(name, text);
            } else if (depth == 1 && text != null) {
                name = text;
            }
            switch (token.group().charAt(0)) {
                case '{', '[' -> depth++;
                case '}', ']' -> depth--;
                case ':' -> isValue = true;
                case ',' -> isValue = false;
                default -> { }
            }
        }
        return found;
    }

    /**
     * Source and id, a tab, the event: one line per event. It is on the disk when this returns true. False = the time is
     * over, and the publisher may have sent newer events of the same object.
     */
    private synchronized boolean keep(String source, String id, String event, long begun) {
        String key = source + "\t" + id;
        if (known.contains(key)) {
            return true;
        }
        if (System.nanoTime() - begun >= patience) {
            return false;
        }
        // What is to be done with the event goes here: with a database, in one transaction with the id.
        ByteBuffer line = ByteBuffer.wrap((key + "\t" + event + "\n").getBytes(StandardCharsets.UTF_8));
        try {
            while (line.hasRemaining()) {
                file.write(line);
            }
            file.force(true);
        } catch (IOException error) { // the disk is full or the like: it ends without an answer, and the event comes again
            System.err.println(error);
            Runtime.getRuntime().halt(1);
        }
        known.add(key);
        return true;
    }

    private void receive(HttpExchange exchange) throws IOException {
        long begun = System.nanoTime();
        try (exchange) {
            byte[] body = exchange.getRequestBody().readNBytes(LIMIT + 1);
            if (body.length > LIMIT) {
                exchange.sendResponseHeaders(413, -1);
                return;
            }
            if (!isSigned(exchange, body)) {
                exchange.sendResponseHeaders(401, -1);
                return;
            }
            String event = new String(body, StandardCharsets.UTF_8);
            Map<String, String> attributes = texts(event);
            String source = attributes.get("source");
            String id = attributes.get("id");
            if (source == null || id == null) {
                exchange.sendResponseHeaders(422, -1);
            } else {
                boolean kept = keep(source, id, event.replaceAll("\\s", " "), begun);
                exchange.sendResponseHeaders(kept ? 204 : 503, -1);
            }
        }
    }

    public static void main(String[] arguments) throws IOException {
        Receiver receiver = new Receiver(
                Path.of(arguments[0]), Double.parseDouble(arguments[2]), System.getenv("EVENTLOG_SINK_SIGNING_SECRET"));
        InetSocketAddress address =
                new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[1]));
        HttpServer server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newCachedThreadPool()); // no request waits for another one unseen
        server.createContext("/events", receiver::receive);
        server.start();
        System.out.println("listening on port " + server.getAddress().getPort());
    }
}
