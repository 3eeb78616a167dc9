import * as client from '@fenced/client';
import * as gateway from '@fenced/gateway';
import * as keys from '@fenced/gateway/credentials';
import * as lock from '@fenced/lock';
import * as etcdLock from '@fenced/lock/etcd';
import * as postgresLock from '@fenced/lock/postgres';
import * as s3Lock from '@fenced/lock/s3';
import * as store from '@fenced/store';
import * as postgres from '@fenced/store/postgres';
import * as s3 from '@fenced/store/s3';
import { expect, test } from 'vitest';

test('one name is one class of errors, in whichever package', () => {
  const exported = [
    lock,
    etcdLock,
    s3Lock,
    postgresLock,
    store,
    client,
    gateway,
    keys,
    postgres,
    s3,
  ].flatMap((module) => Object.entries(module as Record<string, unknown>));
  const classes = new Map<string, Set<unknown>>();
  for (const [name, value] of exported) {
    if (typeof value !== 'function' || !(value.prototype instanceof Error)) continue;
    classes.set(name, (classes.get(name) ?? new Set()).add(value));
  }
  expect(classes.size).toBeGreaterThan(20);
  expect([...classes].filter(([, found]) => found.size > 1).map(([name]) => name)).toEqual([]);
});
