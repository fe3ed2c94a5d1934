"""Federated training from Python: state dicts of NumPy and PyTorch, processes that are killed, models that do not fit.

`test_federated.py serve|join FOLDER ...` is one process of such a run.
"""

import logging
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import support

np = support.need("numpy")
federated = support.need("frugrad.federated")
import frugrad

ROUNDS = 4


def start():
    return {"w": np.zeros((40, 8), np.float32), "scale": np.ones((), np.float64), "steps": np.array(3)}


def train(weights, seed, round):
    """Deterministic by weights, client and round."""
    noise = np.random.default_rng([seed, round]).standard_normal(weights["w"].shape)
    return dict(weights, w=weights["w"] + (0.1 * (seed - weights["w"]) + 0.01 * noise).astype(np.float32),
                scale=weights["scale"] * 1.5)


def serve(folder, run, port, **options):
    return federated.Server(start(), clients=f"{folder}/clients.txt", directory=f"{folder}/{run}",
                            listen=f"127.0.0.1:{port}", key=f"{folder}/server", rounds=ROUNDS, config="density=0.25",
                            deadline=1000, settings={"rate": 0.1}, **options)


def join(folder, name, run, port, seconds=0.0):
    """Take part, with rounds of so many seconds."""
    with federated.Client(f"127.0.0.1:{port}", key=f"{folder}/{name}", server=f"{folder}/server.pub",
                          directory=f"{folder}/{name}.{run}", patience=60) as client:
        client.join(start(), examples=100)
        for weights in client:
            time.sleep(seconds)
            client.push(train(weights, len(name), client.round), loss=1.0)
        return client.weights()


def make_keys(folder, *names):
    federated.keygen(f"{folder}/server")
    Path(folder, "clients.txt").write_text("".join(federated.keygen(f"{folder}/{name}") for name in names))


def run_threads(folder, run, join_one, names, server):
    """Serve, with clients as threads; the result of the server and of the clients."""
    results = {}
    with server:
        server.start()
        threads = [threading.Thread(target=lambda n=n: results.__setitem__(n, join_one(n, server.port))) for n in names]
        for thread in threads:
            thread.start()
        weights = server.wait()
        for thread in threads:
            thread.join()
        return weights, results, server.done


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="frugrad-test-")
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder])

    def test_numpy_clients_learn_and_get_the_result(self):
        make_keys(self.folder, "al", "berta")
        seen = []

        def evaluate(weights):
            seen.append(weights["w"].mean())
            return 0.5, 0.25

        server = serve(self.folder, "run", 0, evaluate=evaluate)
        weights, results, done = run_threads(self.folder, "run", lambda n, port: join(self.folder, n, "run", port),
                                             ["al", "berta"], server)
        self.assertTrue(done)
        self.assertEqual(len(seen), ROUNDS)
        self.assertGreater(weights["w"].mean(), 0.1)
        self.assertEqual(weights["w"].dtype, np.float32)
        self.assertEqual(weights["scale"].dtype, np.float64)
        self.assertGreater(float(weights["scale"]), 1)
        self.assertEqual(int(weights["steps"]), 3)  # an integer is not exchanged
        for name in ("al", "berta"):
            np.testing.assert_array_equal(results[name]["w"], weights["w"])
        status = server.status()
        self.assertEqual([c["counted"] for c in status["clients"]], [ROUNDS] * 2)
        self.assertEqual(status["history"][-1]["eval_accuracy"], 0.25)
        if support.PROGRAM:
            done = subprocess.run([support.PROGRAM, "serve", "--status", "--save", f"{self.folder}/run"],
                                  capture_output=True, text=True)
            self.assertRegex(done.stdout, f"^round {ROUNDS} of {ROUNDS}, done, .*\nloss 1.0000")

    def test_killed_processes_continue_with_the_same_bits(self):
        make_keys(self.folder, "al", "berta")
        straight, _, _ = run_threads(self.folder, "straight",
                                     lambda n, port: join(self.folder, n, "straight", port), ["al", "berta"],
                                     serve(self.folder, "straight", 0))
        port = str(support.free_port())
        commands = [["serve", self.folder, "faults", port], ["join", self.folder, "al", "faults", port],
                    ["join", self.folder, "berta", "faults", port]]
        result, kills = Path(self.folder, "faults.npy"), 0
        log = open(Path(self.folder, "log"), "w")

        def begin(command):
            return subprocess.Popen([sys.executable, "-B", __file__, *command], stdout=log, stderr=log)

        processes = [begin(command) for command in commands]
        try:
            end = time.monotonic() + 200
            while not result.exists() and time.monotonic() < end:
                time.sleep(random.uniform(0.3, 0.8))
                which = kills % 3
                if kills < 6 and not result.exists() and processes[which].poll() is None:
                    processes[which].kill()
                    processes[which].wait()
                    processes[which] = begin(commands[which])
                    kills += 1
        finally:
            for process in processes:
                process.kill()
                process.wait()
            log.close()
        self.assertTrue(result.exists(), Path(self.folder, "log").read_text())
        self.assertGreaterEqual(kills, 2)
        np.testing.assert_array_equal(np.load(result), straight["w"])

    def test_torch_models_with_their_own_loop(self):
        torch = support.need("torch")
        make_keys(self.folder, "al", "berta")

        def model():
            torch.manual_seed(1)
            return torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1))

        def join_one(name, port):
            own = model()
            data = torch.randn(64, 4, generator=torch.Generator().manual_seed(len(name)))
            target = data.sum(1, keepdim=True)
            with federated.Client(f"127.0.0.1:{port}", key=f"{self.folder}/{name}", server=f"{self.folder}/server.pub",
                                  patience=30) as client:
                client.join(dict(reversed(own.state_dict().items())), examples=64)  # in any order
                for weights in client:
                    own.load_state_dict(weights)
                    optimizer = torch.optim.SGD(own.parameters(), lr=client.settings["rate"])
                    for _ in range(5):
                        optimizer.zero_grad()
                        loss = ((own(data) - target)**2).mean()
                        loss.backward()
                        optimizer.step()
                    client.push(own.state_dict(), loss.item())
                return client.weights()

        server = federated.Server(model().state_dict(), clients=f"{self.folder}/clients.txt",
                                  directory=f"{self.folder}/run", listen="127.0.0.1:0", key=f"{self.folder}/server",
                                  rounds=6, settings={"rate": 0.05}, config="density=0.25,feedback=plain,min_size=1")
        weights, results, _ = run_threads(self.folder, "run", join_one, ["al", "berta"], server)
        losses = [r["loss"] for r in server.status()["history"]]
        self.assertLess(losses[-1], 0.5 * losses[0], losses)
        self.assertEqual(list(weights), list(model().state_dict()))
        for name in ("al", "berta"):
            for key in weights:
                if weights[key].is_floating_point():
                    self.assertTrue(torch.equal(results[name][key], weights[key]), key)
        self.assertEqual(int(results["al"]["1.num_batches_tracked"]), 30)  # its own
        model().load_state_dict(weights)

    def test_who_does_not_fit_is_told_on_both_sides(self):
        make_keys(self.folder, "al")
        federated.keygen(f"{self.folder}/stranger")
        with self.assertLogs("frugrad.federated", "INFO") as lines, serve(self.folder, "run", 0) as server:
            server.start()
            at = f"127.0.0.1:{server.port}"

            def client(key="al"):
                return federated.Client(at, key=f"{self.folder}/{key}", server=server.key, patience=5)

            with client() as al:
                self.assertEqual(al.settings, {"rate": 0.1})
                with self.assertRaisesRegex(frugrad.MismatchError, r"'w' has shape \(4, 4\), and \(40, 8\) in the run; "
                                                                   "make the model that the server was started with"):
                    al.join(dict(start(), w=np.zeros((4, 4), np.float32)), examples=1)
            with client() as al, self.assertRaisesRegex(frugrad.MismatchError, "it has no 'scale'"):
                al.join({"w": np.zeros((40, 8))}, examples=1)
            with client() as al, self.assertRaisesRegex(frugrad.MismatchError, "the run has no 'more'"):
                al.join(dict(start(), more=np.zeros(2)), examples=1)
            with self.assertRaisesRegex(frugrad.CommError, "ask its operator to add the line of your .pub file"):
                client("stranger")
            with client() as al, self.assertRaisesRegex(frugrad.FrugradError, r"join\(\) comes first"):
                al.pull()
            if support.PROGRAM:
                done = subprocess.run([support.PROGRAM, "join", at, "--key", f"{self.folder}/al", "--server", server.key,
                                       "--data", "builtin", "--patience", "5"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn("join with frugrad.federated.Client in Python", done.stderr)
        refused = [line for line in lines.output if re.search("al: refused: the client's model has .* parameters", line)]
        self.assertEqual(len(refused), 4 if support.PROGRAM else 3, lines.output)

    def test_a_model_of_more_tensors_than_fit_into_the_job(self):
        make_keys(self.folder, "al")
        model = {f"layer.{i}.weight": np.zeros((1, 2), np.float32) for i in range(3000)}
        with federated.Server(model, clients=f"{self.folder}/clients.txt", directory=f"{self.folder}/run",
                              listen="127.0.0.1:0", rounds=1, linger=5) as server:
            server.start()

            def client():
                return federated.Client(f"127.0.0.1:{server.port}", key=f"{self.folder}/al", server=server.key)

            with client() as al, self.assertRaisesRegex(frugrad.CommError, "2 parameters and other tensors"):
                al.join({"layer.0.weight": np.zeros((1, 2))}, examples=1)
            with client() as al:
                al.join(model, examples=1)
                self.assertTrue(al.push({name: value + 1 for name, value in al.pull().items()}))
                self.assertIsNone(al.pull())
            self.assertGreater(sum(value.sum() for value in server.wait().values()), 0)

    def test_ctrl_c_ends_a_wait(self):
        make_keys(self.folder, "al", "berta")
        with serve(self.folder, "run", 0) as server:
            server.start()
            with federated.Client(f"127.0.0.1:{server.port}", key=f"{self.folder}/al", server=server.key) as al:
                al.join(start(), examples=1)
                self.assertTrue(al.push(al.pull()))
                threading.Timer(0.2, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
                with self.assertRaises(KeyboardInterrupt):
                    al.pull()  # waits for berta's update
            self.assertRaisesRegex(frugrad.FrugradError, "the server runs", server.weights)
            server.stop()
            self.assertFalse(server.done)
        with self.assertRaisesRegex(frugrad.FrugradError, "the client is closed"):
            al.traffic()
        with self.assertRaisesRegex(frugrad.FrugradError, "the server is closed"):
            server.weights()

    @unittest.skipUnless(support.PROGRAM, "the program was not built")
    def test_a_run_of_the_program_is_refused(self):
        make_keys(self.folder, "al")
        port = support.free_port()
        server = subprocess.Popen([support.PROGRAM, "serve", "--model", "mlp", "--data", "builtin", "--samples", "100",
                                   "--clients", "clients.txt", "--key", "server", "--listen", f"127.0.0.1:{port}",
                                   "--save", "run"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        try:
            with federated.Client(f"127.0.0.1:{port}", key=f"{self.folder}/al", server=f"{self.folder}/server.pub",
                                  patience=20) as al:
                with self.assertRaisesRegex(frugrad.MismatchError, "trains 'mlp' with 'frugrad serve': join it with"):
                    al.join(start(), examples=1)
        finally:
            server.terminate()
            lines = server.communicate()[1]
        self.assertRegex(lines, "al: refused: the client's model has .* parameters and other tensors")

    def test_mistakes_of_the_operator(self):
        make_keys(self.folder, "al")
        for options, text in (({"robust": "magic"}, "expected mean, clip or trim"), ({"trim": 0.7}, "trim: expected"),
                              ({"optimizer": "magic"}, "magic"), ({"settings": {"x": "y" * 70000}}, "fit into a message"),
                              ({"config": "local=4"}, "local has no effect here"),
                              ({"clients": "/nowhere"}, "cannot be read")):
            arguments = dict({"clients": f"{self.folder}/clients.txt", "directory": f"{self.folder}/run"}, **options)
            with self.assertRaisesRegex(frugrad.FrugradError, text):
                federated.Server(start(), listen="127.0.0.1:0", **arguments)
        with self.assertRaisesRegex(frugrad.FrugradError, "never replaced"):
            federated.keygen(f"{self.folder}/al")
        with self.assertRaisesRegex(TypeError, "'w' is neither"):
            federated.Server({"w": [1.0]}, clients="x", directory=self.folder)
        with self.assertRaisesRegex(ValueError, "no floating-point tensor"):
            federated.Server({"w": np.zeros(3, int)}, clients="x", directory=self.folder)


class FlatStates(unittest.TestCase):
    def test_rounding_to_a_short_dtype_is_no_training(self):
        from frugrad._state_dict import FlatState

        flat = FlatState({"w": np.zeros(100, np.float16)})
        exact, trained = flat.buffer(), flat.buffer()
        exact[:] = np.random.default_rng(1).standard_normal(100).astype(np.float32).tolist()
        state = flat.read(exact)
        flat.write(state, trained, exact)
        self.assertEqual(list(trained), list(exact))
        state["w"][3] += np.float16(1)
        flat.write(state, trained, exact)
        self.assertAlmostEqual(trained[3], exact[3] + 1, delta=2e-3)
        self.assertEqual(list(trained[4:]), list(exact[4:]))


def load_tests(loader, tests, pattern):
    import doctest

    import frugrad._state_dict

    tests.addTests(doctest.DocTestSuite(federated))
    tests.addTests(doctest.DocTestSuite(frugrad._state_dict))
    return tests


def main(what, folder, *arguments):
    logging.basicConfig(level=logging.INFO)
    if what == "join":
        join(folder, *arguments, seconds=0.6)  # time enough to be killed
        return
    run, port = arguments
    with serve(folder, run, port) as server:
        weights = server.run()
    np.save(f"{folder}/{run}.part.npy", weights["w"])
    os.replace(f"{folder}/{run}.part.npy", f"{folder}/{run}.npy")


if __name__ == "__main__":
    main(*sys.argv[1:])
