import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type GuardedProcess, makeTemporaryFolder } from './guardian.js';
import { findProgram } from './programs.js';
import { askS3, type CrashableS3, makeAndRemoveBucket, type S3Keys } from './s3-address.js';
import {
  type Launch,
  launch,
  onFreePort,
  run,
  type Server,
  startCrashable,
  untilItAnswers,
} from './server.js';

/**
 * Starts a Ceph of one node in memory, and its S3 gateway. Both end when `parts` is disposed.
 *
 * There is no manager (ceph-mgr). A manager monitors and balances, which the pools and the gateway
 * do not need.
 */
export async function startRadosgw(
  keys: S3Keys,
  parts: AsyncDisposableStack,
): Promise<CrashableS3> {
  const folder = parts.use(await makeTemporaryFolder('ceph'));
  const ceph = await onFreePort(async (port) => {
    const cluster = new Cluster(join(folder.path, `${port}`), port, parts);
    await cluster.start();
    return cluster;
  });
  await ceph.run('radosgw-admin', [
    ...['user', 'create', '--uid=fenced', '--display-name=fenced'],
    ...[`--access-key=${keys.accessKeyId}`, `--secret-key=${keys.secretAccessKey}`],
  ]);
  return await onFreePort(async (port) => {
    const address = { ...keys, endpoint: `http://127.0.0.1:${port}` };
    const frontend = `beast endpoint=127.0.0.1:${port} tcp_nodelay=1`;
    const gateway = ceph.program('radosgw', [
      ...['-f', '-n', 'client.rgw', `--rgw-frontends=${frontend}`],
      // The default `secure` needs keys, which a cluster without authentication does not have.
      '--ms-mon-client-mode=crc',
    ]);
    // The OSD keeps running, so the data survive.
    const crash = await startCrashable(gateway, () => askS3(address), parts);
    await makeAndRemoveBucket(address);
    return { ...address, crash };
  });
}

/** One monitor and one OSD in one folder. The machine's own Ceph configuration is not used. */
class Cluster {
  readonly #folder: string;
  readonly #port: number;
  readonly #parts: AsyncDisposableStack;

  constructor(folder: string, port: number, parts: AsyncDisposableStack) {
    this.#folder = folder;
    this.#port = port;
    this.#parts = parts;
  }

  async start(): Promise<void> {
    const id = randomUUID();
    const osdId = randomUUID();
    for (const part of ['', 'mon', 'osd', 'rgw']) await mkdir(join(this.#folder, part));
    await writeFile(join(this.#folder, 'ceph.conf'), configuration(this.#folder, id, this.#port));
    const address = `[v2:127.0.0.1:${this.#port}]`;
    await this.run('monmaptool', ['--create', '--fsid', id, '--addv', 'a', address, 'monmap']);
    await this.run('ceph-mon', ['--mkfs', '-i', 'a', '--monmap', 'monmap']);
    const monitor = await this.launch('ceph-mon', ['-f', '-i', 'a']);
    await untilItAnswers(monitor, () =>
      this.run('ceph', ['--connect-timeout', '5', 'osd', 'new', osdId]),
    );
    await this.run('ceph-osd', ['--mkfs', '-i', '0', '--osd-uuid', osdId]);
    const osd = await this.launch('ceph-osd', ['-f', '-i', '0']);
    osd.unref();
  }

  async launch(program: string, args: readonly string[]): Promise<GuardedProcess & Server> {
    return this.#parts.use(await launch(this.program(program, args)));
  }

  run(program: string, args: readonly string[]): Promise<void> {
    return run(this.program(program, args));
  }

  program(program: string, args: readonly string[]): Launch {
    return {
      command: findProgram(program) ?? program,
      args: ['-c', 'ceph.conf', ...args],
      options: {
        cwd: this.#folder,
        env: { ...process.env, CEPH_ARGS: '', CEPH_CONF: join(this.#folder, 'ceph.conf') },
        // The data are in memory, and an orderly end of the gateway takes 5 s.
        endSignal: 'SIGKILL',
      },
      logPath: join(this.#folder, `${program}.log`),
    };
  }
}

function configuration(folder: string, id: string, port: number): string {
  return `[global]
fsid = ${id}
mon host = v2:127.0.0.1:${port}
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false

auth cluster required = none
auth service required = none
auth client required = none
keyring = ${folder}/keyring

run dir = ${folder}
crash dir = ${folder}
mon data = ${folder}/mon
osd data = ${folder}/osd
rgw data = ${folder}/rgw
admin socket =
pid file =
log file =
mon cluster log file =
log to stderr = true
err to stderr = true

osd objectstore = memstore
memstore device bytes = ${4 * 1024 ** 3}
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true

# A monitor ends itself if the disk is nearly full. This one writes almost nothing.
mon data avail crit = 0

# With the defaults, each new pool waits a second for a vote among one monitor.
paxos propose interval = 0.02
paxos min wait = 0.01
`;
}
