export function open() {}
export function explain() {}
