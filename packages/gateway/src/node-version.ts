// Imported first: without this check, an older Node would fail later, for no visible reason.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 14)) {
  throw new Error(
    `@fenced/gateway needs Node 22.14 or newer; this is Node ${process.versions.node}`,
  );
}
