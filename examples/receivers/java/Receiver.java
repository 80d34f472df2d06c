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
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Executors;

/**
 * Receives changes as CloudEvents with nothing but the JDK, and keeps each event once, by its id, in a file.
 *
 * <pre>java Receiver.java events.tsv 8080 20</pre>
 *
 * 20 is the number of seconds after which a request is dropped: less than sink.timeout, after which the publisher sends
 * its event again.
 *
 * In eventlog.toml: [sink] type = "http", url = "http://localhost:8080/events"; [format] type = "cloudevents",
 * mode = "binary": an event a request, its id in a header, so that no JSON has to be read here.
 */
public class Receiver {
    private final FileChannel file;
    private final Set<String> known = new HashSet<>();

    private final long patience;

    Receiver(Path path, double seconds) throws IOException {
        patience = (long) (seconds * 1e9);
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
        String kept = Files.readString(path, StandardCharsets.ISO_8859_1);
        // What a crash has left of a last line was never answered, and comes again.
        int end = kept.lastIndexOf('\n') + 1;
        file.truncate(end).position(end);
        kept.substring(0, end).lines().forEach(line -> known.add(line.substring(0, line.lastIndexOf('\t'))));
    }

    /**
     * Source and id, a tab, the data: one line per event. It is on the disk when this returns true. False = the time is
     * over, and the publisher may have sent newer events of the same object.
     */
    private synchronized boolean keep(String source, String id, String data, long begun) {
        String key = source + "\t" + id;
        if (known.contains(key)) {
            return true;
        }
        if (System.nanoTime() - begun >= patience) {
            return false;
        }
        // What is to be done with the event goes here: with a database, in one transaction with the id.
        ByteBuffer line = ByteBuffer.wrap((key + "\t" + data + "\n").getBytes(StandardCharsets.UTF_8));
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
            String data = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            String source = exchange.getRequestHeaders().getFirst("ce-source");
            String id = exchange.getRequestHeaders().getFirst("ce-id");
            if (source == null || id == null) {
                exchange.sendResponseHeaders(422, -1);
            } else {
                boolean kept = keep(source, id, data.replaceAll("\\s", " "), begun);
                exchange.sendResponseHeaders(kept ? 204 : 503, -1);
            }
        }
    }

    public static void main(String[] arguments) throws IOException {
        Receiver receiver = new Receiver(Path.of(arguments[0]), Double.parseDouble(arguments[2]));
        InetSocketAddress address =
                new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(arguments[1]));
        HttpServer server = HttpServer.create(address, 0);
        server.setExecutor(Executors.newCachedThreadPool()); // no request waits for another one unseen
        server.createContext("/events", receiver::receive);
        server.start();
        System.out.println("listening on port " + server.getAddress().getPort());
    }
}
