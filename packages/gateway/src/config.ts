import './node-version.js';
import { readFileSync } from 'node:fs';
import { parse, parseDocument } from 'yaml';
import * as z from 'zod';
import { configSchema, type ResolvedConfig } from './config-schema.js';

/** What a gateway goes by. Every field is described in docs/gateway-configuration.md. */
export interface Config extends ResolvedConfig {
  /** What whoever starts the gateway should know, a sentence each. */
  readonly warnings: readonly string[];
}

/** Where a configuration comes from. What the environment says goes before what the file says. */
export interface ConfigSource {
  /** The path of a YAML file. */
  readonly file?: string;
  /** Variables are named after the fields: `FENCED_GATEWAY_LISTEN_PORT` is `listen.port`. Lists are written as YAML or JSON. */
  readonly env: NodeJS.ProcessEnv;
}

/** The configuration cannot be used. The message lists everything that is wrong with it, a line each, and no secret. */
export class ConfigError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`the configuration cannot be used:\n${problems.map((one) => `  ${one}`).join('\n')}`);
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

/** A part of a JSON Schema, as far as it is read here. */
interface FieldSchema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, FieldSchema>>;
}

interface Field {
  readonly path: readonly string[];
  readonly isText: boolean;
}

const VARIABLE_PREFIX = 'FENCED_GATEWAY_';
/** What Kubernetes tells every container of a service that is named `fenced-gateway`: these are no settings of ours. */
const OF_KUBERNETES =
  /^FENCED_GATEWAY_(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(?:TCP|UDP|SCTP)\w*)$/;

/**
 * Reads the files that the configuration names, too. Nothing is opened or connected.
 *
 * @throws {ConfigError} with all problems at once
 */
export function readConfig({ file, env }: ConfigSource): Config {
  const problems: string[] = [];
  const fields = file === undefined ? {} : readYaml(file, problems);
  const variables = takeVariables(fields, env, problems);
  const parsed = configSchema.safeParse(fields);
  for (const { path, message } of parsed.error?.issues ?? []) {
    const name = z.core.toDotPath(path);
    const [variable] = [...variables].find(([, field]) => name.startsWith(field)) ?? [];
    problems.push(`${name || 'the file'}: ${message}${variable ? ` (${variable})` : ''}`);
  }
  if (problems.length > 0 || !parsed.success) throw new ConfigError(problems);
  return { ...parsed.data, warnings: warningsAbout(parsed.data) };
}

/** The name of the environment variable for a field. */
export function variableFor(path: readonly string[]): string {
  const words = path.join('_').replace(/[A-Z]/g, (letter) => `_${letter}`);
  return `${VARIABLE_PREFIX}${words.toUpperCase()}`;
}

function readYaml(file: string, problems: string[]): Record<string, unknown> {
  let fields: unknown;
  try {
    const document = parseDocument(readFileSync(file, 'utf8'), { stringKeys: true });
    // Of what follows a mistake in the syntax nothing can be said.
    if (document.errors.length > 0)
      throw new ConfigError(document.errors.map(({ message }) => firstLine(message)));
    fields = document.toJS() ?? {};
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw new ConfigError([`the file cannot be read: ${(error as Error).message}`]);
  }
  if (isSection(fields)) return fields;
  problems.push('the file: must be a mapping of sections, such as listen and redis');
  return {};
}

/** Puts what the environment says into `fields`. @returns which variable gave which field */
function takeVariables(
  fields: Record<string, unknown>,
  env: NodeJS.ProcessEnv,
  problems: string[],
): ReadonlyMap<string, string> {
  const known = new Map(
    fieldsOf(z.toJSONSchema(configSchema, { io: 'input' }) as FieldSchema).map((field) => [
      variableFor(field.path),
      field,
    ]),
  );
  const taken = new Map<string, string>();
  for (const [variable, text = ''] of Object.entries(env)) {
    // Compose files and shells pass on what is not set as empty.
    if (!variable.startsWith(VARIABLE_PREFIX) || text === '' || OF_KUBERNETES.test(variable))
      continue;
    const field = known.get(variable);
    if (field === undefined) {
      problems.push(`${variable}: there is no such field`);
      continue;
    }
    try {
      put(fields, field.path, field.isText ? text : parse(text));
      taken.set(variable, field.path.join('.'));
    } catch (error) {
      problems.push(`${variable}: must be YAML or JSON: ${firstLine((error as Error).message)}`);
    }
  }
  return taken;
}

function fieldsOf({ type, properties }: FieldSchema, path: readonly string[] = []): Field[] {
  if (properties === undefined) return [{ path, isText: type === 'string' }];
  return Object.entries(properties).flatMap(([name, schema]) => fieldsOf(schema, [...path, name]));
}

function put(fields: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const [name = '', ...rest] = path;
  if (rest.length === 0) {
    fields[name] = value;
    return;
  }
  fields[name] ??= {};
  // What is no section is told as such when all is checked.
  if (isSection(fields[name])) put(fields[name], rest, value);
}

function isSection(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function warningsAbout({
  credentials,
  listen,
  signing,
  objects,
  records,
}: ResolvedConfig): string[] {
  const warnings = [
    credentials.anonymous &&
      `no credentials are configured: every program on this machine may do everything, and ${listen.host} is the only address that is listened on`,
    signing === undefined &&
      'no signing keys are configured: whoever may write may present any number, and lock the others out',
    signing?.required === false &&
      'bare tokens are accepted: whoever may write may present any number, and lock the others out',
    objects === undefined && records === undefined && 'neither objects nor records are configured',
  ];
  return warnings.filter((warning) => typeof warning === 'string');
}

/** The rest shows the text of the file, which may have secrets. */
function firstLine(message: string): string {
  return message.split('\n', 1)[0] ?? '';
}
