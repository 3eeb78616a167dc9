// Imported before anything else. An older Node would fail late, without naming the reason.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 12)) {
  throw new Error(`@fenced/lock needs Node 22.12 or newer; this is Node ${process.versions.node}`);
}
