/** The version of Postern, as it calls itself. */
export const VERSION = '0.1.0';
