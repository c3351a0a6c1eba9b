<?php
// Reads a multipart form as PHP does, under its own web server. Answers fields and files as JSON.
$files = [];
foreach ($_FILES as $name => $file) {
    $files[] = [(string) $name, $file['full_path'] ?? $file['name']];
}
$fields = [];
foreach ($_POST as $name => $value) {
    $fields[] = [(string) $name, is_string($value) ? $value : json_encode($value)];
}
header('Content-Type: application/json');
echo json_encode(['fields' => $fields, 'files' => $files], JSON_INVALID_UTF8_SUBSTITUTE);
