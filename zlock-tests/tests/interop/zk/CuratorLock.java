// Curator's InterProcessMutex, and its InterProcessReadWriteLock on PATH-rw, under command, for tests/zk_peers.rs and tests/zk_mixed.rs. Run as one file: java -cp JARS CuratorLock.java
//
// Arguments: the port that commands come from, the servers, the lock's path, the session timeout in ms. One command a line, one answer a line.

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;

public class CuratorLock {
    public static void main(String[] args) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(
                        args[1], Integer.parseInt(args[3]), 10_000, new ExponentialBackoffRetry(100, 5));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, args[2]);
        LeaderSelector selector = null;
        GroupMember member = null;
        Semaphore yields = new Semaphore(0);
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
                    case "crowd":
                        crowd(mutex, line.split(" "));
                        answers.println("done");
                        break;
                    case "maximum":
                        maximum(client, args[2] + "-max", Integer.parseInt(command[1]));
                        answers.println("set");
                        break;
                    case "barrier":
                        DistributedBarrier barrier = new DistributedBarrier(client, args[2] + "-barrier");
                        if (command[1].equals("set")) {
                            barrier.setBarrier();
                        } else {
                            barrier.removeBarrier();
                        }
                        answers.println("done");
                        break;
                    case "rounds":
                        rounds(client, args[2] + "-double", Integer.parseInt(command[1]), Integer.parseInt(command[2]));
                        answers.println("done");
                        break;
                    case "member":
                        member = new GroupMember(client, args[2], command[1], command[2].getBytes(UTF_8));
                        member.start();
                        answers.println("joined");
                        break;
                    case "payload":
                        member.setThisData(command[1].getBytes(UTF_8));
                        answers.println("set");
                        break;
                    case "members":
                        answers.println(members(member));
                        break;
                    case "depart":
                        member.close();
                        answers.println("left");
                        break;
                    case "permits":
                        permits(client, args[2] + "-permits", Integer.parseInt(command[1]));
                        answers.println("done");
                        break;
                    case "latches":
                        latches(client, args[2], line.split(" "));
                        answers.println("done");
                        break;
                    case "select":
                        selector =
                                new LeaderSelector(
                                        client,
                                        args[2],
                                        new LeaderSelectorListenerAdapter() {
                                            @Override
                                            public void takeLeadership(CuratorFramework leader) throws Exception {
                                                answers.println("leads");
                                                yields.acquire();
                                            }
                                        });
                        selector.start();
                        answers.println("selecting");
                        break;
                    case "yield":
                        yields.release();
                        selector.close();
                        answers.println("yielded");
                        break;
                    default:
                        throw new IllegalArgumentException(line);
                }
            }
        }
        client.close();
        System.exit(0);
    }

    /** The members as they are seen here, in the order of their IDs. */
    private static String members(GroupMember member) {
        List<String> texts = new ArrayList<>();
        new TreeMap<>(member.getCurrentMembers()).forEach((id, data) -> texts.add(id + "=" + new String(data, UTF_8)));
        return String.join(",", texts);
    }

    private static void permits(CuratorFramework client, String path, int times) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, 8);
        for (int i = 0; i < times; i++) {
            semaphore.returnLease(semaphore.acquire());
        }
    }

    private static void maximum(CuratorFramework client, String path, int maximum) throws Exception {
        try (SharedCount count = new SharedCount(client, path, 0)) {
            count.start();
            count.setCount(maximum);
        }
    }

    /** Members that enter and leave a double barrier this often. All of them leave before any enters again. */
    private static void rounds(CuratorFramework client, String path, int rounds, int members) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        for (int round = 0; round < rounds; round++) {
            List<Future<Void>> entered = new ArrayList<>();
            for (int i = 0; i < members; i++) {
                entered.add(threads.submit(() -> {
                    DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, path, members);
                    barrier.enter();
                    barrier.leave();
                    return null;
                }));
            }
            for (Future<Void> member : entered) {
                member.get();
            }
        }
        threads.shutdown();
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

    /** crowd NAME THREADS FOLDER: see tests/zk_mixed.rs, and the docs of Journal in zlock-testkit for the files. */
    private static void crowd(InterProcessMutex mutex, String[] command) throws Exception {
        Path folder = Path.of(command[3]);
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<Void>> workers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(command[2]); i++) {
            String worker = command[1] + "." + i;
            workers.add(threads.submit(() -> work(mutex, worker, folder)));
        }
        for (Future<Void> worker : workers) {
            worker.get();
        }
        threads.shutdown();
    }

    /** latches NAME THREADS FOLDER: as crowd, with a LeaderLatch for each round. */
    private static void latches(CuratorFramework client, String path, String[] command) throws Exception {
        Path folder = Path.of(command[3]);
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<Void>> workers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(command[2]); i++) {
            String worker = command[1] + "." + i;
            workers.add(threads.submit(() -> lead(client, path, worker, folder)));
        }
        for (Future<Void> worker : workers) {
            worker.get();
        }
        threads.shutdown();
    }

    private static Void lead(CuratorFramework client, String path, String worker, Path folder) throws Exception {
        Path count = folder.resolve("count");
        while (!Files.exists(folder.resolve("stop"))) {
            note(folder, "ask " + worker);
            try (LeaderLatch latch = new LeaderLatch(client, path, worker)) {
                latch.start();
                latch.await();
                int number = Integer.parseInt(Files.readString(count));
                note(folder, "in " + worker + " " + number);
                Thread.sleep(1);
                Files.writeString(count, Integer.toString(number + 1), StandardOpenOption.WRITE);
                note(folder, "out " + worker + " " + (number + 1));
            }
        }
        return null;
    }

    private static Void work(InterProcessMutex mutex, String worker, Path folder) throws Exception {
        Path count = folder.resolve("count");
        while (!Files.exists(folder.resolve("stop"))) {
            note(folder, "ask " + worker);
            mutex.acquire();
            try {
                int number = Integer.parseInt(Files.readString(count));
                note(folder, "in " + worker + " " + number);
                Thread.sleep(1);
                Files.writeString(count, Integer.toString(number + 1), StandardOpenOption.WRITE);
                note(folder, "out " + worker + " " + (number + 1));
            } finally {
                mutex.release();
            }
        }
        return null;
    }

    private static void note(Path folder, String line) throws IOException {
        Files.writeString(folder.resolve("journal"), line + "\n", StandardOpenOption.APPEND);
    }
}
