// Curator's InterProcessMutex, and its InterProcessReadWriteLock on PATH-rw, under command, for tests/zk_peers.rs. Run as one file: java -cp JARS CuratorLock.java
//
// Arguments: the port that commands come from, the servers, the lock's path. One command a line, one answer a line.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class CuratorLock {
    public static void main(String[] args) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[1], 10_000, 10_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, args[2]);
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, args[2] + "-rw");
        try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(args[0]));
                BufferedReader commands = new BufferedReader(new InputStreamReader(socket.getInputStream()));
                PrintWriter answers = new PrintWriter(socket.getOutputStream(), true)) {
            String line;
            while ((line = commands.readLine()) != null) {
                String[] command = line.split(" ", 3);
                switch (command[0]) {
                    case "acquire":
                        answers.println(mutex.acquire(Long.parseLong(command[1]), TimeUnit.MILLISECONDS));
                        break;
                    case "release":
                        mutex.release();
                        answers.println("released");
                        break;
                    case "read":
                        answers.println(both.readLock().acquire(Long.parseLong(command[1]), TimeUnit.MILLISECONDS));
                        break;
                    case "write":
                        answers.println(both.writeLock().acquire(Long.parseLong(command[1]), TimeUnit.MILLISECONDS));
                        break;
                    case "stop":
                        if (command[1].equals("reading")) {
                            both.readLock().release();
                        } else {
                            both.writeLock().release();
                        }
                        answers.println("released");
                        break;
                    case "revocable":
                        mutex.makeRevocable(asked -> answers.println("asked"));
                        answers.println("revocable");
                        break;
                    case "revoke":
                        Revoker.attemptRevoke(client, mutex.getParticipantNodes().iterator().next());
                        answers.println("revoked");
                        break;
                    case "count":
                        count(mutex, Integer.parseInt(command[1]), Path.of(command[2]));
                        answers.println("counted");
                        break;
                    default:
                        throw new IllegalArgumentException(line);
                }
            }
        }
        client.close();
        System.exit(0);
    }

    private static void count(InterProcessMutex mutex, int times, Path file) throws Exception {
        for (int i = 0; i < times; i++) {
            mutex.acquire();
            try {
                int number = Integer.parseInt(Files.readString(file));
                Files.writeString(file, Integer.toString(number + 1));
            } finally {
                mutex.release();
            }
        }
    }
}
