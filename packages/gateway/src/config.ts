import './node-version.js';
import { readFileSync } from 'node:fs';
import { parse, parseDocument } from 'yaml';
import * as z from 'zod';
import { configSchema, type ResolvedConfig } from './config-schema.js';

/** A gateway's configuration. docs/gateway-configuration.md describes every field. */
export interface Config extends ResolvedConfig {
  /** Warnings for the operator, a sentence each. */
  readonly warnings: readonly string[];
}

/** The source of a configuration. The environment overrides the file. */
export interface ConfigSource {
  /** The path of a YAML file. */
  readonly file?: string;
  /** `FENCED_GATEWAY_LISTEN_PORT` is `listen.port`. Lists are YAML or JSON. */
  readonly env: NodeJS.ProcessEnv;
}

/**
 * The configuration cannot be used. The message has one line for each mistake, and contains no
 * secret.
 */
export class ConfigError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`the configuration cannot be used:\n${problems.map((one) => `  ${one}`).join('\n')}`);
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

/** The members of a JSON Schema that are read here. */
interface FieldSchema {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, FieldSchema>>;
}

interface Field {
  readonly path: readonly string[];
  readonly isText: boolean;
}

const VARIABLE_PREFIX = 'FENCED_GATEWAY_';
/** Names of variables that Kubernetes sets for a service, without those that end in `_PORT`. */
const OF_SERVICE =
  /^FENCED_GATEWAY_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$/;
const SERVICE_URL = /^(?:tcp|udp|sctp):\/\//;

/**
 * Reads the configuration, and the files that it names. It connects to nothing.
 *
 * @throws {ConfigError} with all mistakes at once
 */
export function readConfig({ file, env }: ConfigSource): Config {
  const problems: string[] = [];
  const fields = file === undefined ? {} : readYaml(file, problems);
  const variables = takeVariables(fields, env, problems);
  if (file === undefined && variables.size === 0)
    problems.push(
      `name a file with --config, or set variables such as ${variableFor(['redis', 'nodes'])}`,
    );
  const parsed = configSchema.safeParse(fields, { error: explain });
  for (const { path, message } of parsed.error?.issues ?? []) {
    const name = z.core.toDotPath(path);
    const [variable] = [...variables].find(([, field]) => name.startsWith(field)) ?? [];
    problems.push(`${name || 'the file'}: ${message}${variable ? ` (${variable})` : ''}`);
  }
  if (problems.length > 0 || !parsed.success) throw new ConfigError(problems);
  return { ...parsed.data, warnings: warningsAbout(parsed.data) };
}

/** Names of the types, for people who write YAML. */
const TYPES: Readonly<Record<string, string>> = {
  object: 'a mapping',
  array: 'a list',
  string: 'a text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
};

/** Message for a mistake, if the schema itself has none. */
function explain(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.code === 'unrecognized_keys') return `there is no field ${issue.keys.join(', ')}`;
  if (issue.code !== 'invalid_type') return undefined;
  const type = TYPES[issue.expected] ?? issue.expected;
  return issue.input === undefined ? `is missing; it must be ${type}` : `must be ${type}`;
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
    // After a mistake in the syntax, nothing else can be checked.
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

/**
 * Puts the values of the environment into `fields`.
 *
 * @returns for each variable, the path of its field
 */
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
    // Compose files and shells pass unset variables as empty ones.
    if (!variable.startsWith(VARIABLE_PREFIX) || text === '') continue;
    const field = known.get(variable);
    if (field === undefined) {
      if (!isServiceLink(variable, text)) problems.push(`${variable}: there is no such field`);
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

/**
 * True for a variable that Kubernetes gives to every container, for each service in its namespace.
 * The service `fenced-gateway-eu` makes `FENCED_GATEWAY_EU_PORT`. That could also be a misspelt
 * field, but Kubernetes gives it a URL, and a port of a field is a number.
 */
function isServiceLink(variable: string, text: string): boolean {
  return OF_SERVICE.test(variable) || (variable.endsWith('_PORT') && SERVICE_URL.test(text));
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
  // The schema reports a value that is not a section.
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
      `no credentials are configured: every program on this machine may do everything. So the gateway listens on ${listen.host} only`,
    signing === undefined &&
      'no signing keys are configured: a caller with the right to write may present any number, and lock all others out',
    signing?.required === false &&
      'bare tokens are accepted: a caller with the right to write may present any number, and lock all others out',
    objects === undefined && records === undefined && 'neither objects nor records are configured',
  ];
  return warnings.filter((warning) => typeof warning === 'string');
}

/**
 * The first line of a parser's message. The other lines quote the file, which may contain secrets.
 */
function firstLine(message: string): string {
  return message.split('\n', 1)[0] ?? '';
}
