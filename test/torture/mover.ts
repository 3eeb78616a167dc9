// The operator's process of a move. It prints a line as it begins. It ends when the move is done.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type Moves, type NodeAddress, openRedlock } from './locks.ts';

export interface MoverConfig {
  readonly subject: string;
  readonly nodes: readonly NodeAddress[];
  readonly moves: Moves;
  /** True if the process ends when every next node waits for the move, before the first SEAL. */
  readonly endsUnsealed: boolean;
}

const config: MoverConfig = JSON.parse(process.argv[2] ?? '');
const nodes = connect(config.nodes);
for (const { client } of config.endsUnsealed ? nodes : []) {
  const evalsha = client.evalsha.bind(client);
  const send = (...call: Parameters<typeof evalsha>) =>
    call.some((one) => one === 'seal') ? process.exit() : evalsha(...call);
  Object.assign(client, { evalsha: send });
}
const locks = await openRedlock(config.subject, nodes, config.moves);
process.stdout.write('begins\n');
while (![await locks.move()].flat().every(({ state }) => state === 'done')) await sleep(5);
process.exit();
