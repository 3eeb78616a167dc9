import type { Operation } from './history.ts';

export function toJsonLines(operations: readonly Operation[]): string {
  return operations.map((operation) => `${JSON.stringify(operation)}\n`).join('');
}

export function fromJsonLines(text: string): readonly Operation[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Operation);
}
