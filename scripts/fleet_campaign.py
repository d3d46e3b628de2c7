#!/usr/bin/env python3
"""Faults against a fleet: a PostgreSQL server of its own, workers, and what may happen to them.

    python3 scripts/fleet_campaign.py SQUALL [--faults 1000] [--workers 3] [--seed 1] [--keep DIR]

SQUALL is built with `--features fleet`. Each fault is drawn from the seed: a worker is killed, is
stopped for longer than its lease and wakes, has its connection cut; the server crashes, is killed
hard, is down for a while; records are pushed twice; a driver is killed while it submits. Jobs are put
in as others end. Then all workers start once more and end where nothing is left, and the verdict is:
each trial that a worker reported stands in its own store and on the server; no trial is there twice;
every job is done; nothing was called a culprit that is none. Prints a table of the faults and exits
with 1 where anything was lost. PostgreSQL's programs are looked for in /usr/lib/postgresql/*/bin and
the PATH."""

import argparse
import collections
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KERNELS = ["matmul m={} n=32 k=32", "matmul m=16 n={} k=64", "softmax rows=16 cols={}"]
LEASE = 2.0


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
        os.chmod(folder, 0o755)
        self.user = []
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
            self.user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
        self.call("initdb", "-D", folder / "data", "-A", "trust", "-U", "squall", "--no-locale",
                  "-E", "UTF8")
        self.start()
        self.sql("CREATE DATABASE squall", "postgres")
        self.url = f"postgres://squall@/squall?host={folder}"

    def call(self, program, *words, check=True):
        with open(self.folder.parent / "server.out", "w+") as out:
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

    def sql(self, text, database="squall", check=True):
        return self.call("psql", "-h", self.folder, "-U", "squall", "-d", database, "-qAtX", "-c",
                         text, check=check).strip()


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
            self.process = subprocess.Popen(
                [self.campaign.squall, "worker", "--server", self.campaign.server.url, "--store",
                 self.store, "--lease", str(LEASE), "--seed", str(self.number), "--json", *more],
                stdout=out, stderr=err, stdin=subprocess.DEVNULL)

    def ensure(self):
        if self.process is None or self.process.poll() is not None:
            self.start()

    def kill(self):
        self.process.kill()
        self.process.wait()

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
        self.jobs, self.counts = 0, collections.Counter()

    def run(self, *words, check=True):
        done = subprocess.run([self.squall, *map(str, words)], capture_output=True, text=True,
                              cwd=self.folder)
        if check and done.returncode:
            sys.exit(f"squall {' '.join(map(str, words))}: {done.stderr}")
        return done

    def submit(self):
        self.jobs += 1
        kernel = self.random.choice(KERNELS).format(8 * self.random.randrange(2, 24))
        path = self.folder / f"job{self.jobs}.ops"
        path.write_text(f"job{self.jobs}: {kernel}\n")
        return ["fleet", "submit", str(path), "--server", self.server.url, "--trials-per-task",
                "24", "--slice", "8"]

    def fault(self):
        worker = self.random.choice(self.workers)
        kind = self.random.choices(
            ["worker killed", "worker stopped beyond its lease", "connections cut",
             "server crash", "server killed hard", "server down", "records pushed twice",
             "driver killed"],
            weights=[30, 8, 25, 8, 4, 5, 10, 10])[0]
        self.counts[kind] += 1
        if kind == "worker killed":
            worker.kill()
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
        culprits = self.server.sql("SELECT count(*) FROM squall.record WHERE detail = "
                                   "'two workers died while it ran'")
        again = self.server.sql("SELECT coalesce(sum(trials), 0) FROM squall.slice WHERE state = "
                                "'failed'")
        deaths = self.server.sql("SELECT count(*) FROM squall.death")
        print(f"{sum(self.counts.values())} faults, {self.jobs} jobs, {len(there)} trials, "
              f"{deaths} deaths of leases")
        for kind, n in sorted(self.counts.items()):
            print(f"  {n:5} {kind}")
        print(f"lost {lost}, twice {twice}, slices not done {undone}, trials of failed slices "
              f"{again}, candidates called culprits {culprits}")
        return lost == twice == undone == int(again) == 0


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
            for worker in campaign.workers:
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
        for worker in campaign.workers:
            if worker.process and worker.process.poll() is None:
                worker.process.kill()
        campaign.server.stop("immediate")
    if fine and not a.keep:
        shutil.rmtree(folder)
    sys.exit(0 if fine else f"what went wrong lies in {folder}")


if __name__ == "__main__":
    main()
