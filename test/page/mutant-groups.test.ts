import { expect, test } from 'vitest';
import { mutantGroups } from '../../packages/page/src/view/mutant-groups.ts';
import { mutants } from '../simulation/mutant-list.ts';

test('each mutant belongs to one step of the protocol', () => {
  const names = mutantGroups.flatMap((group) => group.mutants);
  expect(names.toSorted()).toEqual(mutants.map(({ name }) => name).toSorted());
});
