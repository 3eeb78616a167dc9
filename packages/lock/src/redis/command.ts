import { inspect } from 'node:util';
import type { CommandName } from './scripts.js';

/** A command with its keys and arguments. Any number of nodes may get it. */
export class Command {
  readonly name: CommandName;
  readonly keys: readonly string[];
  readonly values: readonly string[];

  constructor(name: CommandName, keys: readonly string[], values: readonly (string | number)[]) {
    this.name = name;
    this.keys = keys;
    this.values = values.map(String);
  }

  /** True if at most the first argument and the keys differ, as in most calls of a command. */
  isLike({ name, keys, values }: Command): boolean {
    if (name !== this.name || keys.length !== this.keys.length) return false;
    return (
      values.length === this.values.length &&
      this.values.every((value, at) => at === 0 || value === values[at])
    );
  }
}

/** The reply to a command. A vote names one of `voters` by its place, from 1. */
export interface Reply {
  readonly parts: readonly unknown[];
  readonly voters: readonly string[];
  /** True if the node may have run the command after commands that were sent later. */
  readonly mayBeLate: boolean;
}

/** A command for any number of nodes, and the receiver of their replies. */
export interface Call<Node> {
  readonly command: Command;
  /** The command is not sent after this time on the runtime's monotonic clock. */
  readonly untilMs: number;
  /** Called later, with each node's reply or the reason why there is none. Never throws. */
  onReply(node: Node, reply: Reply | Error): void;
}

export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

/** An error for a reply that is none of the script's. */
export function unexpected(reply: unknown): Error {
  const shown = typeof reply === 'string' ? JSON.stringify(reply) : inspect(reply);
  return new Error(`not the reply of a lock script; is this a Redis server? reply=${shown}`);
}
