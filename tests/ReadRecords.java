import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;

/** Reads keys or values with their schemas, one a line, by Kafka Connect's JsonConverter. */
public class ReadRecords {
    public static void main(String[] arguments) throws IOException {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true"), false);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                Object value = converter.toConnectData("topic", line.getBytes(StandardCharsets.UTF_8)).value();
                out.println("read: " + String.valueOf(value).replace("\n", " "));
            } catch (RuntimeException error) {
                out.println("refused: " + error.toString().replace("\n", " "));
            }
        }
    }
}
