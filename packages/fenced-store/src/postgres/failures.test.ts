import { expect, test } from 'vitest';
import { refusal } from './failures.js';

// Errors that no other test can cause, because most come from a server that is a replica.
test.each([
  ['a hot standby, to BEGIN READ WRITE', '0A000', 'store-setup'],
  ['a read-only server, to a write', '25006', 'store-setup'],
  ['too many locks', '53200', 'unavailable'],
])('%s', (_, code, meaning) => {
  const error = Object.assign(new Error('no'), { code, severity: 'ERROR' });
  expect(refusal(error, 'invoice/42')).toMatchObject({ code: meaning, cause: error });
});
