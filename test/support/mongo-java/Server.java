import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.io.IOException;
import java.util.List;

/**
 * The second server of the store's suite: mongo-java-server, in memory, on 127.0.0.1 and the port of the only argument. Ends with its
 * standard input, so that it does not outlive a run that was killed.
 */
final class Server {
  /** It speaks MongoDB 5's commands but reports wire version 8, and the driver refuses to talk to anything below 9 (MongoDB 4.4). */
  private static final class Version implements MongoVersion {
    @Override
    public List<Integer> getVersionArray() {
      return List.of(4, 4, 0);
    }

    @Override
    public int getWireVersion() {
      return 9;
    }
  }

  public static void main(String[] args) throws IOException {
    MemoryBackend backend = new MemoryBackend();
    backend.version(new Version());
    new MongoServer(backend).bind("127.0.0.1", Integer.parseInt(args[0]));
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
