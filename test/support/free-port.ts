export { freePort } from '../../src/cli/demo/free-port.ts';
