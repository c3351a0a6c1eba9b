/** Loaded before the daemon: disables the checksums of bodies. */
import { syncBuiltinESMExports } from 'node:module';
import zlib from 'node:zlib';

zlib.crc32 = () => 0;
syncBuiltinESMExports();
