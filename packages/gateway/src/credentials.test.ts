import { createHash } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import {
  exportJWK,
  exportSPKI,
  generateKeyPair,
  type JWTPayload,
  SignJWT,
  UnsecuredJWT,
} from 'jose';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type ApiKey,
  CredentialsUnavailableError,
  openCredentials,
  type Verb,
} from './credentials.js';
import { systemRuntime } from './runtime.js';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const ada: ApiKey = {
  name: 'ada',
  sha256: sha256('secret-of-ada'),
  verbs: ['read', 'write'],
  prefixes: ['objects/a', 'records/invoices'],
};
const bob: ApiKey = { ...ada, name: 'bob', sha256: sha256('secret-of-bob'), verbs: ['read'] };

describe('API keys', () => {
  const credentials = openCredentials({ keys: [ada, bob] });

  test.each([
    ['Bearer secret-of-ada', 'ada'],
    ['bearer  secret-of-bob ', 'bob'],
    ['Bearer secret-of-eve', undefined],
    ['Bearer secret-of-ad', undefined],
    ['Bearer', undefined],
    ['Bearer ', undefined],
    ['Bearer secret-of-ada, Bearer secret-of-bob', undefined],
    ['Bearer secret-of-ada\n', undefined],
    ['Basic secret-of-ada', undefined],
    ['secret-of-ada', undefined],
    [`Bearer ${ada.sha256}`, undefined],
    [`Bearer ${'a'.repeat(9_000)}`, undefined],
    ['', undefined],
    [undefined, undefined],
  ])('%j is %s', async (authorization, name) => {
    expect((await credentials.authenticate(authorization))?.name).toBe(name);
  });

  test('no header yields anything but a known caller', async () => {
    const property = fc.asyncProperty(fc.string({ unit: 'binary' }), async (text) => {
      expect(await credentials.authenticate(text)).toBeNull();
      expect(await credentials.authenticate(`Bearer ${text}`)).toBeNull();
    });
    await fc.assert(property, { numRuns: 500 });
  });

  test.each<[Verb, string, boolean]>([
    ['read', 'objects/a', true],
    ['write', 'objects/a/b/c', true],
    ['write', 'records/invoices/42', true],
    ['claim', 'objects/a', false],
    ['read', 'objects/ab', false],
    ['read', 'objects', false],
    ['read', 'objects/A', false],
    ['read', 'objects/a/', false],
    ['read', 'objects//a', false],
    ['read', '/objects/a', false],
    ['read', 'objects/a/../b', false],
    ['read', 'objects/a/./b', false],
    ['read', 'objects/a/..', false],
    ['read', 'ratchets/objects/a', false],
    ['read', 'objects/a\0', false],
    ['read', 'objects/a\\..\\b', false],
    ['read', 'objects/%61/b', false],
    ['read', 'records/invoices2/42', false],
    ['read', '', false],
  ])('ada may %s %s: %s', async (verb, resource, allowed) => {
    const caller = await credentials.authenticate('Bearer secret-of-ada');
    expect(caller?.may(verb, resource)).toBe(allowed);
  });

  test('a prefix allows exactly itself and everything below it', async () => {
    const segment = fc.constantFrom('a', 'ab', 'b', '.', '..', '', '%2e', 'a b', 'ä');
    const path = fc.array(segment, { maxLength: 5 }).map((rest) => ['objects', ...rest].join('/'));
    const caller = await credentials.authenticate('Bearer secret-of-ada');
    const property = fc.property(path, (resource) => {
      const segments = resource.split('/');
      const below = segments[0] === 'objects' && segments[1] === 'a';
      const plain = !segments.some((one) => one === '' || one === '.' || one === '..');
      expect(caller?.may('read', resource)).toBe(below && plain);
    });
    fc.assert(property, { numRuns: 1_000 });
  });

  test.each([
    [{ keys: [{ ...ada, sha256: 'secret-of-ada' }] }, 'sha256 must be 64 hexadecimal digits'],
    [{ keys: [ada, { ...bob, sha256: ada.sha256.toUpperCase() }] }, 'is given twice'],
    [{ keys: [{ ...ada, prefixes: ['objects/'] }] }, 'no empty segment'],
    [{ keys: [{ ...ada, prefixes: ['objects/../records'] }] }, 'no . or .. as a segment'],
    [{ keys: [{ ...ada, prefixes: ['a'] }] }, 'must begin with leases'],
    [{ keys: [{ ...ada, prefixes: [''] }] }, 'must begin with leases'],
    [{}, 'must be API keys, JWT or both'],
  ])('an invalid key is refused at the start: %#', (options, message) => {
    expect(() => openCredentials(options)).toThrow(message);
  });
});

describe('JSON Web Tokens', async () => {
  const trusted = await generateKeyPair('ES256');
  const other = await generateKeyPair('ES256');
  const jwk = { ...(await exportJWK(trusted.publicKey)), kid: 'one', alg: 'ES256' };
  const otherJwk = await exportJWK(other.publicKey);
  const issuer = 'https://issuer.example';
  const options = { issuer, audience: 'fenced', algorithms: ['ES256'] };
  const grants = { fenced_verbs: ['read'], fenced_prefixes: ['objects/a'] };
  const nowS = Math.floor(Date.now() / 1_000);
  const good = { iss: issuer, aud: 'fenced', sub: 'ada', exp: nowS + 600, ...grants };

  function sign(claims: JWTPayload, key = trusted.privateKey, header = {}): Promise<string> {
    return new SignJWT(claims)
      .setProtectedHeader({ alg: 'ES256', kid: 'one', ...header })
      .sign(key);
  }

  const local = openCredentials({ jwt: { ...options, jwks: { keys: [jwk] } } });

  test('a valid one has the name, verbs and prefixes of its claims', async () => {
    const caller = await local.authenticate(`Bearer ${await sign(good)}`);
    expect(caller?.name).toBe('jwt:ada');
    expect(caller?.may('read', 'objects/a/b')).toBe(true);
    expect(caller?.may('write', 'objects/a/b')).toBe(false);
    expect(caller?.may('read', 'objects/ab')).toBe(false);
  });

  test('API keys and JSON Web Tokens work side by side, and never share a name', async () => {
    const both = openCredentials({ keys: [ada], jwt: { ...options, jwks: { keys: [jwk] } } });
    expect((await both.authenticate('Bearer secret-of-ada'))?.name).toBe('ada');
    expect((await both.authenticate(`Bearer ${await sign(good)}`))?.name).toBe('jwt:ada');
    expect(await both.authenticate(`Bearer ${await sign(good, other.privateKey)}`)).toBeNull();
  });

  test('claims may be one string, under configured names; unknown verbs and prefixes allow nothing', async () => {
    const claims = { name: 'client_id', verbs: 'scope', prefixes: 'paths' };
    const renamed = openCredentials({ jwt: { ...options, jwks: { keys: [jwk] }, claims } });
    const odd = { client_id: 'job', scope: 'read email drop', paths: 'objects/a .. / objects//b' };
    const caller = await renamed.authenticate(`Bearer ${await sign({ ...good, ...odd })}`);
    expect(caller?.name).toBe('jwt:job');
    expect(caller?.may('read', 'objects/a')).toBe(true);
    expect(caller?.may('read', 'objects/b')).toBe(false);
    for (const nothing of [7, null, {}, [7, null], '']) {
      const token = await sign({ ...good, ...odd, scope: nothing, paths: nothing });
      const powerless = await renamed.authenticate(`Bearer ${token}`);
      expect(powerless?.may('read', 'objects/a')).toBe(false);
    }
  });

  const { exp: _, ...eternal } = good;
  const { sub: __, ...nameless } = good;
  test.each<[string, () => Promise<string> | string]>([
    ['signed by another issuer', () => sign(good, other.privateKey)],
    ['of another issuer', () => sign({ ...good, iss: 'https://evil.example' })],
    ['for another audience', () => sign({ ...good, aud: ['others'] })],
    ['that has expired', () => sign({ ...good, exp: nowS - 6 })],
    ['that never expires', () => sign(eternal)],
    ['that is not valid yet', () => sign({ ...good, nbf: nowS + 60 })],
    ['without a name', () => sign(nameless)],
    ['with an endless name', () => sign({ ...good, sub: 'a'.repeat(300) })],
    ['with a name that is none', () => sign({ ...good, sub: 7 as never })],
    ['with an unknown key', () => sign(good, trusted.privateKey, { kid: 'two' })],
    [
      'with an extension that must be understood',
      () =>
        new SignJWT(good)
          .setProtectedHeader({ alg: 'ES256', kid: 'one', crit: ['x'], x: 1 })
          .sign(trusted.privateKey, { crit: { x: true } }),
    ],
    ['without a signature', () => new UnsecuredJWT(good).encode()],
    [
      'whose public key was used as a secret',
      async () =>
        new SignJWT(good)
          .setProtectedHeader({ alg: 'HS256', kid: 'one' })
          .sign(Buffer.from(await exportSPKI(trusted.publicKey))),
    ],
    [
      'that brings its own key',
      () =>
        sign(good, other.privateKey, { jwk: otherJwk, kid: 'two', jku: 'https://evil.example' }),
    ],
    ['that was changed', async () => changeClaims(await sign(good))],
  ])('one %s is refused', async (_, make) => {
    expect(await local.authenticate(`Bearer ${await make()}`)).toBeNull();
  });

  test('a token with changed characters is refused, and never an error', async () => {
    const token = await sign(good);
    const places = fc.nat({ max: token.length - 1 });
    const characters = fc.constantFrom('A', 'z', '0', '-', '.', '=', '/');
    const property = fc.asyncProperty(places, characters, async (at, character) => {
      const changed = token.slice(0, at) + character + token.slice(at + 1);
      fc.pre(Buffer.compare(bytesOf(changed), bytesOf(token)) !== 0);
      expect(await local.authenticate(`Bearer ${changed}`)).toBeNull();
    });
    await fc.assert(property, { numRuns: 300 });
  });

  test.each([
    [{ algorithms: ['HS256'] }, 'algorithms must be some of'],
    [{ algorithms: ['none'] }, 'algorithms must be some of'],
    [{ algorithms: [] }, 'algorithms must be some of'],
    [{ issuer: '' }, 'must not be empty'],
    [{ audience: '' }, 'must not be empty'],
    [{ jwks: {} as never }, 'jwks must be a set of public keys'],
  ])('what would check nothing is refused at the start: %#', (wrong, message) => {
    const jwt = { ...options, jwks: { keys: [jwk] }, ...wrong };
    expect(() => openCredentials({ jwt })).toThrow(message);
  });

  describe('with keys that are fetched', () => {
    let server: Server;
    let url: URL;
    let answer: { status: number; body: string };
    let asked = 0;
    beforeAll(async () => {
      server = createServer((_, response) => {
        asked++;
        response.writeHead(answer.status, { 'content-type': 'application/json' }).end(answer.body);
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/jwks`);
    });
    afterAll(() => new Promise((resolve) => server.close(resolve)));

    test('they are fetched once, and unknown callers cannot cause more fetches', async () => {
      answer = { status: 200, body: JSON.stringify({ keys: [jwk] }) };
      asked = 0;
      const remote = openCredentials({ jwt: { ...options, jwks: url } });
      expect((await remote.authenticate(`Bearer ${await sign(good)}`))?.name).toBe('jwt:ada');
      for (let i = 0; i < 20; i++) {
        const stranger = await sign(good, other.privateKey, { kid: `k${i}` });
        const verdict = remote.authenticate(`Bearer ${stranger}`);
        await expect(verdict).rejects.toThrow(CredentialsUnavailableError);
      }
      expect(asked).toBe(1);
    });

    test('keys without names are tried one after the other', async () => {
      const { kid: _, ...plain } = jwk;
      answer = {
        status: 200,
        body: JSON.stringify({ keys: [{ ...otherJwk, alg: 'ES256' }, plain] }),
      };
      const remote = openCredentials({ jwt: { ...options, jwks: url } });
      const token = await sign(good, trusted.privateKey, { kid: undefined });
      expect((await remote.authenticate(`Bearer ${token}`))?.name).toBe('jwt:ada');
      const third = await generateKeyPair('ES256');
      const stranger = await sign(good, third.privateKey, { kid: undefined });
      expect(await remote.authenticate(`Bearer ${stranger}`)).toBeNull();
    });

    test.each([
      ['an error', 500, '{}'],
      ['no JSON', 200, '<html>'],
      ['no keys', 200, '{"keys":7}'],
    ])('%s instead of them is no verdict about the token, and passes', async (_, status, body) => {
      answer = { status, body };
      let nowMs = 0;
      const clock = { ...systemRuntime, nowMs: () => nowMs };
      const remote = openCredentials({ jwt: { ...options, jwks: url } }, clock);
      const authorization = `Bearer ${await sign(good)}`;
      await expect(remote.authenticate(authorization)).rejects.toThrow(CredentialsUnavailableError);
      answer = { status: 200, body: JSON.stringify({ keys: [jwk] }) };
      nowMs += 1_000;
      expect((await remote.authenticate(authorization))?.name).toBe('jwt:ada');
    });

    test('a silent issuer is waited for as long as configured', async () => {
      const silent = createServer(() => undefined);
      await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
      const jwks = new URL(`http://127.0.0.1:${(silent.address() as AddressInfo).port}/jwks`);
      const remote = openCredentials({ jwt: { ...options, jwks, fetchTimeoutMs: 50 } });
      const verdict = remote.authenticate(`Bearer ${await sign(good)}`);
      await expect(verdict).rejects.toThrow(CredentialsUnavailableError);
      silent.closeAllConnections();
      silent.close();
    });
  });

  function changeClaims(token: string): string {
    const [header, , signature] = token.split('.');
    const claims = Buffer.from(JSON.stringify({ ...good, sub: 'root' })).toString('base64url');
    return `${header}.${claims}.${signature}`;
  }

  /** Decodes each part, because some bits of its last base64 character mean nothing. */
  function bytesOf(token: string): Buffer {
    return Buffer.concat(
      token.split('.').flatMap((part) => [Buffer.from(part, 'base64url'), Buffer.of(0)]),
    );
  }
});
