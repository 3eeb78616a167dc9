import { expect, test } from 'vitest';
import { type Acquisition, History } from './history.ts';

const resources = ['r'];
const first = (): Acquisition => ({
  client: 'c0',
  owner: 'o0',
  resources,
  token: 33n,
  beganMs: 0,
  returnedMs: 10,
  endsMs: 25,
});
const later: Acquisition = {
  client: 'c1',
  owner: 'o1',
  resources,
  token: 34n,
  beganMs: 20,
  returnedMs: 30,
  endsMs: 40,
};

function extendedAfterLater(isExclusive: boolean, number: bigint) {
  const history = new History(isExclusive);
  const lease = first();
  history.add(lease);
  history.add(later);
  const wrong = history.extend(lease, { beganMs: 50, endsMs: 150, number });
  return { isWrong: wrong !== null, excepted: history.excepted };
}

test('an extension after a later lease is a violation, unless a fault lost the later lock on a node that took the lease back', () => {
  expect(extendedAfterLater(false, 34n)).toEqual({ isWrong: false, excepted: 1 });
  expect(extendedAfterLater(false, 33n)).toEqual({ isWrong: true, excepted: 0 });
  expect(extendedAfterLater(true, 34n)).toEqual({ isWrong: true, excepted: 0 });
});
