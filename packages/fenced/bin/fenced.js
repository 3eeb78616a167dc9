#!/usr/bin/env node
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 14)) {
  process.stderr.write(`fenced needs Node 22.14 or newer; this is Node ${process.versions.node}\n`);
  process.exit(1);
}
const { main } = await import('../dist/main.js');
process.exitCode = await main(process.argv.slice(2));
