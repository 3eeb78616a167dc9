import { leasesIn } from '../../../demo/src/leases.ts';
import { rowsOf } from '../view/rows.ts';
import type { Run } from '../world/run.ts';

/**
 * Fields of the protocol buffers of Perfetto's traces:
 * https://github.com/google/perfetto/tree/main/protos/perfetto/trace
 */
const TRACE = { packet: 1 };
const PACKET = { timestamp: 8, sequence: 10, event: 11, track: 60 };
const TRACK = { id: 1, name: 2 };
const EVENT = { type: 9, track: 11, name: 23 };
const TYPE = { begin: 1, end: 2, instant: 3 };

interface Slice {
  readonly track: string;
  readonly name: string;
  readonly fromMs: number;
  /** Absent if the slice is an instant. */
  readonly untilMs?: number;
}

/** Returns a run as a trace that ui.perfetto.dev opens. */
export function toPerfetto(run: Run): Uint8Array<ArrayBuffer> {
  const slices = slicesOf(run);
  const tracks = [...new Set(slices.map(({ track }) => track))];
  const id = (track: string): number => tracks.indexOf(track) + 1;
  const packets = [
    ...tracks.map((name) =>
      message(PACKET.track, [varint(TRACK.id, id(name)), text(TRACK.name, name)]),
    ),
    ...slices.flatMap(({ track, name, fromMs, untilMs }) => {
      const on = [varint(EVENT.track, id(track)), text(EVENT.name, name)];
      if (untilMs === undefined) return [event(fromMs, TYPE.instant, on)];
      return [event(fromMs, TYPE.begin, on), event(Math.max(fromMs, untilMs), TYPE.end, on)];
    }),
  ];
  return Uint8Array.from(
    packets.flatMap((packet) => message(TRACE.packet, [packet, varint(PACKET.sequence, 1)])),
  );
}

/** Slices of one track do not overlap. */
function slicesOf(run: Run): readonly Slice[] {
  const nodes = run.leases.map(({ node, client, fromMs, untilMs }) => {
    const track = `node ${node.toUpperCase()}`;
    return { track, name: `lease of ${client}`, fromMs, untilMs: untilMs ?? run.endMs };
  });
  const believed = leasesIn(run.events).map(({ actor, fromMs, untilMs, token }) => {
    const name = token === null ? 'lease' : `lease, token ${token}`;
    return { track: `${actor} believes`, name, fromMs, untilMs: Math.min(untilMs, run.endMs) };
  });
  const stopped = run.events
    .filter(({ operation }) => operation === 'pause')
    .map(({ actor, atMs }) => {
      const wake = run.events.find((one) => {
        return one.actor === actor && one.operation === 'wake' && one.atMs > atMs;
      });
      const untilMs = wake?.atMs ?? run.endMs;
      return { track: `${actor}'s process`, name: 'stopped', fromMs: atMs, untilMs };
    });
  const rows = rowsOf(run).map(({ place, text, atMs }) => {
    return { track: place, name: text, fromMs: atMs };
  });
  return [...rows, ...believed, ...stopped, ...nodes];
}

function event(ms: number, type: number, rest: readonly number[][]): number[] {
  // Times of a trace are not negative.
  const ns = Math.max(0, Math.round(ms * 1e6));
  return [
    ...varint(PACKET.timestamp, ns),
    ...message(PACKET.event, [varint(EVENT.type, type), ...rest]),
  ];
}

function message(field: number, parts: readonly number[][]): number[] {
  const bytes = parts.flat();
  return [...digits(field * 8 + 2), ...digits(bytes.length), ...bytes];
}

function text(field: number, value: string): number[] {
  return message(field, [[...new TextEncoder().encode(value)]]);
}

function varint(field: number, value: number): number[] {
  return [...digits(field * 8), ...digits(value)];
}

/** A number in the encoding of protocol buffers: seven bits a byte, the lowest first. */
function digits(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) + 128, ...digits(Math.floor(value / 128))];
}
