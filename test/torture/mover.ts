// The process of an operator that moves the locks. It prints a line when it begins, and ends when
// the move is done.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type Moves, type NodeAddress, openRedlock } from './locks.ts';

export interface MoverConfig {
  readonly subject: string;
  readonly nodes: readonly NodeAddress[];
  readonly moves: Moves;
  /** True to end before the first SEAL, when every node of the next set waits for the move. */
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
