import fc from 'fast-check';
import { expect, test } from 'vitest';
import { protections } from '../../packages/demo/src/job.ts';
import {
  LINK_MAX,
  LinkError,
  linkTo,
  parseRoute,
  type Route,
} from '../../packages/page/src/view/route.ts';
import { mutants } from '../simulation/mutant-list.ts';
import { sandboxFault } from './harness/sandbox-faults.ts';

const route: fc.Arbitrary<Route> = fc.oneof(
  fc.record({
    page: fc.constant('sandbox' as const),
    seed: fc.maxSafeNat(),
    protection: fc.constantFrom(...protections),
    votesAtOnce: fc.boolean(),
    faults: fc.array(sandboxFault(), { maxLength: 40 }),
    atMs: fc.nat(1_000_000),
  }),
  fc.record({
    page: fc.constant('remove' as const),
    mutant: fc.constantFrom(...mutants.map(({ name }) => name)),
    seed: fc.maxSafeNat(),
    without: fc.array(fc.nat(120), { maxLength: 120 }),
  }),
  fc.record({
    page: fc.constant('story' as const),
    id: fc.constant('3'),
    protection: fc.constantFrom('lock', 'token', 'claim' as const),
    votesAtOnce: fc.boolean(),
    step: fc.nat(8),
    guess: fc.constantFrom('', 'safe', 'lost', 'two holders', 'refused'),
  }),
  fc.record({
    page: fc.constant('real' as const),
    from: fc.oneof(fc.constantFrom('', 'runs/story-1-lock.json'), fc.webUrl({ size: 'small' })),
  }),
);

test('a link of at most 2,000 characters has the whole state', () => {
  fc.assert(
    fc.property(route, (state) => {
      const link = linkTo(state);
      expect(link.length).toBeLessThanOrEqual(LINK_MAX);
      expect(parseRoute(link)).toEqual(state);
    }),
  );
});

test('a hostile link is refused with a reason', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 3_000, unit: 'binary' }), (text) => {
      for (const link of [
        text,
        `#/sandbox?faults=${text}`,
        `#/story/${text}`,
        `#/real?from=${text}`,
      ]) {
        try {
          parseRoute(link);
        } catch (error) {
          expect(error).toBeInstanceOf(LinkError);
          expect((error as LinkError).message.length).toBeLessThan(400);
        }
      }
    }),
  );
});

test.each([
  ['#/story/99', 'there is no story 99; choose one of 1, 2, 3'],
  ['#/story/1?protection=hope', 'protection=hope is unknown; use one of: none, lock'],
  ['#/sandbox?seed=-1', 'seed=-1 must be a whole number from 0 to'],
  ['#/sandbox?faults=explode.a.1', 'explode.a.1 is no fault; one is like pause.1.1200.3000'],
  ['#/real?from=javascript:1', 'from=javascript:1 is no address of a recorded run'],
  ['#/remove?mutant=everything', 'mutant=everything is unknown; use one of: no confirm round'],
  [`#/sandbox?seed=${'1'.repeat(2_000)}`, 'it has 2015 characters; at most 2000 are allowed'],
])('%s is refused: %s', (link, message) => {
  expect(() => parseRoute(link)).toThrow(message);
});
