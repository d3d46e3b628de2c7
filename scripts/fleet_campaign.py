#!/usr/bin/env python3
"""Faults against a fleet: a PostgreSQL server of its own, workers, and what may happen to them.

    python3 scripts/fleet_campaign.py SQUALL [--faults 1000] [--workers 3] [--seed 1] [--keep DIR]

SQUALL is built with `--features fleet`. Each fault is drawn from the seed: a worker or a builder is
killed, a worker is stopped for longer than its lease and wakes, connections are cut or slow; the
server crashes, is killed hard, is down for a while, has a full disk (where a file system of its own
can be mounted); records are pushed twice; a driver is killed while it submits. Where Debian's
`faketime` is installed, two workers' clocks are an hour off, one either way. Some jobs hold a
candidate that kills every worker that runs it. Jobs are put in as others end. Then all workers
start once more and end where nothing is left, and the verdict is: each trial that a worker reported
stands in its own store and on the server; no trial is there twice; every job is done; each
candidate that kills is recorded as a failure, and of the others none that did not run at two
deaths; builders made objects, and no trial failed by one. Prints a table of the faults and exits with 1 where anything was lost. PostgreSQL's programs
are looked for in /usr/lib/postgresql/*/bin and the PATH."""

import argparse
import collections
import contextlib
import glob
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

KERNELS = ["matmul m={} n=32 k=32", "matmul m=16 n={} k=64", "softmax rows=16 cols={}"]
LEASE = 2.0
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")


def programs():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    path = found[-1] if found else shutil.which("initdb")
    if not path:
        sys.exit("no PostgreSQL: apt-get install postgresql")
    return Path(path).parent


class Server:
    """A server in a folder, on a socket."""

    def __init__(self, folder):
        self.folder, self.bin = folder, programs()
        folder.mkdir()
        # A disk of its own, which can be full without harm to others.
        words = ["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", folder]
        self.is_mounted = subprocess.run(words, capture_output=True).returncode == 0
        os.chmod(folder, 0o755)
        self.user = []
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
            self.user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        self.call("initdb", "-D", folder / "data", "-A", "trust", "-U", "squall", "--no-locale",
                  "-E", "UTF8")
        self.start()
        self.sql("CREATE DATABASE squall", "postgres")
        self.wire = Wire(folder)
        self.url = f"postgres://squall@/squall?host={self.wire.folder}"

    def call(self, program, *words, check=True, out="server.out"):
        with open(self.folder.parent / out, "w+") as out:
            done = subprocess.run([*self.user, self.bin / program, *map(str, words)], cwd="/",
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            out.seek(0)
            said = out.read()
        if check and done.returncode:
            sys.exit(f"{program}: {said}")
        return said

    def start(self):
        options = (f"-c listen_addresses= -c unix_socket_directories={self.folder} "
                   "-c max_connections=60")
        self.call("pg_ctl", "-D", self.folder / "data", "-w", "-t", "120", "-l",
                  self.folder / "log", "-o", options, "start")

    def stop(self, mode):
        self.call("pg_ctl", "-D", self.folder / "data", "-w", "-m", mode, "stop", check=False)

    def kill(self):
        pid = int((self.folder / "data/postmaster.pid").read_text().split()[0])
        # Backends that are left behind hold the memory that the next start needs.
        children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
        for one in [pid, *map(int, children.stdout.split())]:
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.3)
        # Where nothing reaps it, its number still looks like that of a server.
        for lock in ["data/postmaster.pid", ".s.PGSQL.5432.lock"]:
            (self.folder / lock).unlink(missing_ok=True)

    @contextlib.contextmanager
    def full_disk(self):
        ballast = self.folder / "ballast"
        with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as f:
            while True:
                f.write(bytes(1 << 20))
        try:
            yield
        finally:
            ballast.unlink(missing_ok=True)

    def end(self):
        self.stop("immediate")
        if self.is_mounted:
            subprocess.run(["umount", "-l", self.folder], capture_output=True)

    def sql(self, text, database="squall", check=True, out="sql.out"):
        return self.call("psql", "-h", self.folder, "-U", "squall", "-d", database, "-qAtX", "-c",
                         text, check=check, out=out).strip()


class Wire:
    """A socket before the server's, on which what is sent can be held up."""

    def __init__(self, server):
        self.folder, self.delay = Path(f"{server}-wire"), 0.0
        self.folder.mkdir()
        self.to = str(server / ".s.PGSQL.5432")
        self.ear = socket.socket(socket.AF_UNIX)
        self.ear.bind(str(self.folder / ".s.PGSQL.5432"))
        self.ear.listen(64)
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            client, _ = self.ear.accept()
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.to)
            except OSError:
                client.close()
                continue
            for ends in (client, server), (server, client):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, to):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self.delay)
                to.sendall(data)
        for end in source, to:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Killer(threading.Thread):
    """Kills each worker that runs the first candidate seen of a job whose name begins so."""

    def __init__(self, campaign):
        super().__init__(daemon=True)
        self.campaign, self.candidates, self.kills = campaign, {}, collections.Counter()
        self.killed, self.ended = set(), False

    def run(self):
        while not self.ended:
            time.sleep(0.02)
            said = self.campaign.server.sql(
                "SELECT t.name, s.running, w.name FROM squall.slice s JOIN squall.task t ON t.id = "
                "s.task JOIN squall.worker w ON w.id = s.worker WHERE s.state = 'leased' AND "
                "s.running IS NOT NULL AND t.name LIKE 'killer%'", check=False, out="killer.out")
            for line in said.splitlines():
                parts = line.split("|")
                if len(parts) != 3 or not parts[0].startswith("killer"):
                    continue
                task, running, worker = parts
                is_culprit = self.candidates.setdefault(task, running) == running
                if is_culprit and worker not in self.killed:
                    self.killed.add(worker)
                    with contextlib.suppress(ProcessLookupError, ValueError, IndexError):
                        os.kill(int(worker.split(":")[2]), signal.SIGKILL)
                        self.kills[task] += 1


class Builder:
    """A builder that is started again whenever it ended."""

    def __init__(self, campaign):
        self.campaign, self.process = campaign, None

    def ensure(self):
        if self.process is None or self.process.poll() is not None:
            words = ["worker", "--build", "--server", self.campaign.server.url, "--jobs", "1"]
            cache = {"XDG_CACHE_HOME": str(self.campaign.folder / "builder-cache")}
            self.process = subprocess.Popen(
                [self.campaign.squall, *words], env={**os.environ, **cache},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Worker:
    """A worker that is started again whenever it ended; what it reported is remembered."""

    def __init__(self, number, campaign):
        self.number, self.campaign = number, campaign
        self.store = campaign.folder / f"worker{number}.squall"
        self.log = campaign.folder / f"worker{number}.jsonl"
        self.process = None

    def start(self, *more):
        with open(self.log, "a") as out, open(self.log.with_suffix(".err"), "a") as err:
            # A line that a kill cut off must not run into the next one.
            out.write("\n")
            out.flush()
            more_env = {"XDG_CACHE_HOME": str(self.campaign.folder / f"cache{self.number}")}
            shift = {0: "+1h", 1: "-1h"}.get(self.number)
            if FAKETIME and shift:
                # The wrapper `faketime` would be killed in the worker's place.
                more_env.update(LD_PRELOAD=FAKETIME[0], FAKETIME=shift,
                                FAKETIME_DONT_FAKE_MONOTONIC="1")
            self.process = subprocess.Popen(
                [self.campaign.squall, "worker", "--server", self.campaign.server.url, "--store",
                 self.store, "--lease", str(LEASE), "--seed", str(self.number), "--json", *more],
                env={**os.environ, **more_env}, stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def ensure(self):
        if self.process is None or self.process.poll() is not None:
            self.start()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def fetched(self):
        found = 0
        for line in self.log.read_text().splitlines():
            with contextlib.suppress(ValueError, TypeError):
                found += json.loads(line).get("fetched", 0)
        return found

    def reported(self):
        found = set()
        for line in self.log.read_text().splitlines():
            try:
                found.add(json.loads(line)["trial"]["identity"])
            except (ValueError, KeyError, TypeError):
                continue
        return found


class Campaign:
    def __init__(self, squall, folder, workers, seed):
        self.squall, self.folder = squall.resolve(), folder
        self.random = random.Random(seed)
        self.server = Server(folder / "pg")
        self.run("fleet", "init", self.server.url)
        self.workers = [Worker(n, self) for n in range(workers)]
        self.builder, self.killer = Builder(self), Killer(self)
        self.jobs, self.counts = 0, collections.Counter()
        self.killer.start()

    def run(self, *words, check=True):
        done = subprocess.run([self.squall, *map(str, words)], capture_output=True, text=True,
                              cwd=self.folder)
        if check and done.returncode:
            sys.exit(f"squall {' '.join(map(str, words))}: {done.stderr}")
        return done

    def submit(self):
        self.jobs += 1
        kernel = self.random.choice(KERNELS).format(8 * self.random.randrange(2, 24))
        name = "killer" if self.random.random() < 0.2 else "job"
        path = self.folder / f"job{self.jobs}.ops"
        path.write_text(f"{name}{self.jobs}: {kernel}\n")
        return ["fleet", "submit", str(path), "--server", self.server.url, "--trials-per-task",
                "24", "--slice", "8"]

    def fault(self):
        worker = self.random.choice(self.workers)
        kind = self.random.choices(
            ["worker killed", "worker stopped beyond its lease", "connections cut",
             "server crash", "server killed hard", "server down", "records pushed twice",
             "driver killed", "builder killed", "connections slow", "server's disk full"],
            weights=[26, 8, 20, 7, 4, 5, 9, 9, 6, 4, 2 * self.server.is_mounted])[0]
        self.counts[kind] += 1
        if kind == "worker killed":
            worker.kill()
        elif kind == "builder killed":
            self.builder.kill()
        elif kind == "connections slow":
            self.server.wire.delay = self.random.uniform(0.05, 0.5)
            time.sleep(self.random.uniform(1.0, 3.0))
            self.server.wire.delay = 0.0
        elif kind == "server's disk full":
            with self.server.full_disk():
                time.sleep(self.random.uniform(0.5, 2.0))
            # A server that could not write its log has ended.
            if self.server.sql("SELECT 1", check=False) != "1":
                self.server.stop("immediate")
                self.server.start()
        elif kind == "worker stopped beyond its lease":
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(LEASE * self.random.uniform(0.8, 1.6))
            worker.process.send_signal(signal.SIGCONT)
        elif kind == "connections cut":
            self.server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                            "application_name = 'squall'", check=False)
        elif kind == "server crash":
            self.server.stop("immediate")
            self.server.start()
        elif kind == "server killed hard":
            self.server.kill()
            self.server.start()
        elif kind == "server down":
            self.server.stop("fast")
            time.sleep(self.random.uniform(0.2, 2.0))
            self.server.start()
        elif kind == "records pushed twice":
            self.run("fleet", "push", "--server", self.server.url, "--store", worker.store,
                     check=False)
        else:
            driver = subprocess.Popen([self.squall, *self.submit()], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, cwd=self.folder)
            time.sleep(self.random.uniform(0.0, 0.3))
            driver.kill()
            driver.wait()

    def open_jobs(self):
        said = self.server.sql("SELECT count(*) FROM squall.slice WHERE state IN "
                               "('ready', 'leased')", check=False)
        return int(said) if said.isdigit() else 0

    def settle(self):
        """All workers once more, until nothing is left."""
        for worker in self.workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.kill()
        self.killer.ended = True
        self.killer.join()
        time.sleep(LEASE + 0.5)
        for worker in self.workers:
            worker.start("--until-idle")
        for worker in self.workers:
            if worker.process.wait(timeout=900) != 0:
                sys.exit(f"worker {worker.number} ends with {worker.process.returncode}: see "
                         f"{worker.log.with_suffix('.err')}")

    def identities(self, store):
        shown = self.run("records", "show", "--kind", "trial", "--json", "--store", store).stdout
        return [r["identity"] for r in json.loads(shown)["records"]]

    def verdict(self):
        pulled = self.folder / "pulled.squall"
        self.run("fleet", "pull", "--server", self.server.url, "--store", pulled)
        there = self.identities(pulled)
        lost, twice = 0, len(there) - len(set(there))
        for worker in self.workers:
            own = set(self.identities(worker.store))
            lost += len(worker.reported() - own) + len(own - set(there))
        undone = self.open_jobs()
        said = self.server.sql(
            "SELECT t.name, u.name || ': ' || r.configuration FROM squall.record r JOIN squall.task "
            "t ON t.id = r.task JOIN squall.tunable u ON u.id = r.tunable WHERE r.detail = "
            "'two workers died while it ran'")
        culprits = {tuple(line.split("|")) for line in said.splitlines()}
        true = {k for k in self.killer.candidates.items() if self.killer.kills[k[0]] >= 2}
        # What ran at two deaths that the campaign caused elsewhere is a culprit by the rule.
        died = self.server.sql(
            "SELECT t.name, d.running FROM squall.death d JOIN squall.task t ON t.id = d.task WHERE "
            "d.running IS NOT NULL GROUP BY 1, 2 HAVING count(*) >= 2")
        twice_dead = {tuple(line.split("|")) for line in died.splitlines()}
        innocents = len(culprits - twice_dead)
        escaped = len((true & twice_dead) - culprits)
        again = self.server.sql("SELECT coalesce(sum(trials), 0) FROM squall.slice WHERE state = "
                                "'failed'")
        deaths = self.server.sql("SELECT count(*) FROM squall.death")
        print(f"{sum(self.counts.values())} faults, {self.jobs} jobs, {len(there)} trials, "
              f"{deaths} deaths of leases")
        for kind, n in sorted(self.counts.items()):
            print(f"  {n:5} {kind}")
        print(f"lost {lost}, twice {twice}, slices not done {undone}, trials of failed slices "
              f"{again}")
        # The farm did something, and what it brought broke no trial.
        objects = int(self.server.sql("SELECT count(*) FROM squall.object WHERE bytes IS NOT NULL"))
        broken = self.server.sql("SELECT count(*) FROM squall.record WHERE outcome IN (2, 3) AND "
                                 "detail <> 'two workers died while it ran'")
        fetched = sum(worker.fetched() for worker in self.workers)
        print(f"objects of builders {objects}, run by workers that ended in peace {fetched}, trials "
              f"that failed at build or launch {broken}")
        print(f"candidates that kill {len(true)}, called culprits {len(culprits & true)}, escaped "
              f"{escaped}; others that ran at two deaths {len(culprits - true)}, at fewer "
              f"{innocents}")
        faults = [lost, twice, undone, int(again), innocents, escaped, int(broken)]
        return not any(faults) and objects > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("squall", type=Path)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    a = parser.parse_args()
    folder = a.keep or Path(tempfile.mkdtemp(prefix="sq-fleet-", dir="/tmp"))
    folder.mkdir(exist_ok=True)
    os.chmod(folder, 0o755)
    campaign = Campaign(a.squall, folder, a.workers, a.seed)
    try:
        begin = time.monotonic()
        for n in range(a.faults):
            for worker in [*campaign.workers, campaign.builder]:
                worker.ensure()
            while campaign.open_jobs() < 2:
                if campaign.run(*campaign.submit(), check=False).returncode:
                    break
            time.sleep(campaign.random.expovariate(2.0))
            campaign.fault()
            if n % 20 == 19:
                print(f"{n + 1} faults, {time.monotonic() - begin:.0f} s", file=sys.stderr,
                      flush=True)
        campaign.settle()
        fine = campaign.verdict()
    finally:
        campaign.killer.ended = True
        for worker in [*campaign.workers, campaign.builder]:
            if worker.process and worker.process.poll() is None:
                worker.process.kill()
        campaign.server.end()
    if fine and not a.keep:
        shutil.rmtree(folder)
    sys.exit(0 if fine else f"what went wrong lies in {folder}")


if __name__ == "__main__":
    main()
