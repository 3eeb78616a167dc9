// The operator's process of a move. It prints a line as it begins. It ends when the move is done.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type Moves, type NodeAddress, openRedlock } from './locks.ts';

export interface MoverConfig {
  readonly subject: string;
  readonly nodes: readonly NodeAddress[];
  readonly moves: Moves;
}

const { subject, nodes, moves }: MoverConfig = JSON.parse(process.argv[2] ?? '');
const locks = await openRedlock(subject, connect(nodes), moves);
process.stdout.write('begins\n');
while (![await locks.move()].flat().every(({ state }) => state === 'done')) await sleep(5);
process.exit();
