// Imported before anything else: what is missing in an older Node would fail late, and say nothing of the reason.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 12)) {
  throw new Error(
    `@fenced/gateway needs Node 22.12 or newer; this is Node ${process.versions.node}`,
  );
}
